// A little Markdown, built as DOM nodes: text from the model never becomes HTML.

const element = (name, text) => {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  return node;
};

const INLINE = /(`+)([^`]|[^`][^]*?[^`])\1(?!`)|\*\*(?=\S)([^]*?\S)\*\*|(?<![\w*])\*(?=[^\s*])([^*\n]*?[^\s*])\*(?![\w*])|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)/g;

// Code, strong and emphasized text and links within a line.
function inline(parent, text) {
  let from = 0;
  for (const found of text.matchAll(INLINE)) {
    parent.append(text.slice(from, found.index));
    from = found.index + found[0].length;
    const [, , code, strong, emphasis, label, address] = found;
    if (code !== undefined) parent.append(element('code', code));
    else if (strong !== undefined) inline(parent.appendChild(element('strong')), strong);
    else if (emphasis !== undefined) inline(parent.appendChild(element('em')), emphasis);
    else {
      const link = parent.appendChild(element('a', label));
      Object.assign(link, { href: address, target: '_blank', rel: 'noopener noreferrer' });
    }
  }
  parent.append(text.slice(from));
}

function codeBlock(lines) {
  const block = element('pre');
  const text = lines.join('\n');
  block.append(element('code', text));
  const copy = block.appendChild(element('button', 'Copy'));
  copy.type = 'button';
  copy.onclick = async () => {
    // Pages that are not served from this machine or over TLS have no clipboard.
    const done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
    copy.textContent = done ? 'Copied' : 'Select the text to copy it';
  };
  return block;
}

const ITEM = /^\s{0,3}(?:[-*+]|(\d+)[.)])\s+(.*)/;

export function render(text) {
  const out = document.createDocumentFragment();
  const lines = text.split('\n');
  let paragraph = [];
  const flush = () => {
    if (paragraph.length) inline(out.appendChild(element('p')), paragraph.join('\n'));
    paragraph = [];
  };
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i];
    const fence = line.match(/^\s{0,3}(```+|~~~+)/);
    const item = line.match(ITEM);
    const heading = line.match(/^#{1,6}\s+(.*)/);
    if (fence) {
      flush();
      const body = [];
      while (++i < lines.length && !lines[i].trim().startsWith(fence[1])) body.push(lines[i]);
      out.append(codeBlock(body));
    } else if (heading) {
      flush();
      inline(out.appendChild(element('h3')), heading[1]);
    } else if (item) {
      flush();
      const list = out.appendChild(element(item[1] ? 'ol' : 'ul'));
      if (item[1]) list.start = Number(item[1]);
      for (; i < lines.length && ITEM.test(lines[i]); i++) {
        inline(list.appendChild(element('li')), lines[i].match(ITEM)[2]);
      }
      i--;
    } else if (/^>\s?/.test(line)) {
      flush();
      inline(out.appendChild(element('blockquote')), line.replace(/^>\s?/, ''));
    } else if (line.trim() === '') {
      flush();
    } else {
      paragraph.push(line);
    }
  }
  flush();
  return out;
}
