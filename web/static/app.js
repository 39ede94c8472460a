// The chat page: one conversation, streamed from /v1/chat/completions, and a look at the slots.

import { render } from './markdown.js';

const $ = (id) => document.getElementById(id);
const SETTINGS = ['system', 'temperature', 'top_p', 'max_tokens'];
const POLL_MS = 1000;

let messages = [];
let running = null; // the AbortController of the answer under way

// --- the server ---

async function api(path, options = {}) {
  const key = $('key').value.trim();
  const headers = { ...options.headers, ...(key && { authorization: `Bearer ${key}` }) };
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  if (response.status === 401) toggle('settings', true);
  throw new Error(body?.error?.message ?? `the server answered ${response.status}`);
}

// The data of each server-sent event, as it comes.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const blocks = rest.split('\n\n');
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split('\n').filter((l) => l.startsWith('data:')).map((l) => l.slice(5).trim()).join('\n');
      if (data) yield data;
    }
  }
}

async function untilReady() {
  for (;;) {
    try {
      const response = await fetch('health');
      const health = await response.json();
      if (response.ok) return;
      const part = health.progress ? ` ${Math.round(health.progress * 100)}%` : '…';
      $('model').textContent = health.status === 'loading' ? `loading the model${part}` : `server: ${health.status}`;
    } catch {
      $('model').textContent = 'the server does not answer';
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

async function describe() {
  const props = await (await api('props')).json();
  const { name, title, architecture } = props.model;
  $('model').textContent = `${title ?? name} · ${architecture} · window ${props.context.toLocaleString()} tokens`;
  for (const id of ['temperature', 'top_p']) $(id).placeholder = props.sampling[id]?.value ?? '';
  $('max_tokens').placeholder = props.max_tokens;
}

// --- the conversation ---

function add(role) {
  $('empty')?.remove();
  const article = document.createElement('article');
  article.className = role;
  const text = article.appendChild(document.createElement('div'));
  $('log').append(article);
  return { article, text };
}

// Keeps the end in view unless the reader has scrolled up.
function following(change) {
  const log = $('log');
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  change();
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function requestBody() {
  const system = $('system').value.trim();
  const body = {
    messages: [...(system ? [{ role: 'system', content: system }] : []), ...messages],
    stream: true,
    stream_options: { include_usage: true },
  };
  for (const id of SETTINGS.slice(1)) {
    if ($(id).value !== '' && $(id).checkValidity()) body[id] = Number($(id).value);
  }
  return JSON.stringify(body);
}

function figures({ started, first, last, usage, reason }) {
  const parts = [];
  if (first) parts.push(`first token ${((first - started) / 1000).toFixed(2)} s`);
  if (usage) {
    const { prompt_tokens: prompt, completion_tokens: out, prompt_tokens_details: details } = usage;
    if (out > 1 && last > first) parts.unshift(`${(((out - 1) * 1000) / (last - first)).toFixed(1)} tok/s`);
    parts.push(`${out} tokens`, `prompt ${prompt}, ${Math.floor((100 * details.cached_tokens) / Math.max(prompt, 1))}% cached`);
  }
  if (reason === 'length') parts.push('cut off at the limit of tokens');
  if (reason === 'stopped') parts.push('stopped');
  return parts.join(' · ');
}

async function answer() {
  const { article, text } = add('assistant');
  const conversation = messages;
  const turn = { started: performance.now() };
  let content = '';
  let drawn = false;
  const draw = () => {
    drawn = false;
    following(() => text.replaceChildren(render(content)));
  };
  text.className = 'waiting';
  running = new AbortController();
  busy(true);
  try {
    const headers = { 'content-type': 'application/json' };
    const options = { method: 'POST', headers, body: requestBody(), signal: running.signal };
    for await (const data of events(await api('v1/chat/completions', options))) {
      if (data === '[DONE]') break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      turn.usage = chunk.usage ?? turn.usage;
      const choice = chunk.choices[0];
      turn.reason = choice?.finish_reason ?? turn.reason;
      if (!choice?.delta.content) continue;
      content += choice.delta.content;
      turn.last = performance.now();
      turn.first ??= turn.last;
      if (!drawn) drawn = requestAnimationFrame(draw);
    }
    if (!turn.reason) throw new Error('the connection broke off');
  } catch (error) {
    if (error.name === 'AbortError') turn.reason = 'stopped';
    else article.append(Object.assign(document.createElement('p'), { className: 'problem', textContent: error.message }));
  }
  draw();
  text.className = '';
  const told = Object.assign(document.createElement('div'), { className: 'figures', textContent: figures(turn) });
  following(() => article.append(told));
  // Without an answer the question is taken back, so that the next one follows the last answer.
  if (content) conversation.push({ role: 'assistant', content });
  else conversation.pop();
  running = null;
  busy(false);
}

function busy(yes) {
  $('send').textContent = yes ? 'Stop' : 'Send';
  $('send').classList.toggle('stop', yes);
}

function fit() {
  $('prompt').style.height = 'auto';
  $('prompt').style.height = `${$('prompt').scrollHeight + 2}px`;
}

function send() {
  if (running) return running.abort();
  const content = $('prompt').value.trim();
  if (!content) return;
  $('prompt').value = '';
  fit();
  messages.push({ role: 'user', content });
  add('user').text.textContent = content;
  $('log').scrollTop = $('log').scrollHeight;
  answer();
}

// --- the slots ---

function slotCard(slot) {
  const card = Object.assign(document.createElement('div'), { className: 'slot' });
  card.dataset.state = slot.state;
  const share = slot.prompt_tokens ? slot.prompt_done / slot.prompt_tokens : 0;
  const doing = {
    idle: 'idle',
    prefill: `reading the prompt, ${Math.round(100 * share)}%`,
    decode: `writing, ${slot.generated} tokens`,
    blocked: 'waiting for its client',
  }[slot.state];
  card.append(Object.assign(document.createElement('b'), { textContent: `Slot ${slot.id} ` }), doing);
  if (slot.is_processing) {
    card.append(document.createElement('br'), `prompt ${slot.prompt_tokens}, cached ${slot.cached_tokens}`);
    const bar = card.appendChild(Object.assign(document.createElement('div'), { className: 'bar' }));
    bar.appendChild(document.createElement('i')).style.width = `${100 * (slot.state === 'prefill' ? share : 1)}%`;
  }
  return card;
}

async function pollSlots() {
  if ($('slots').hidden || document.hidden) return;
  try {
    const slots = await (await api('slots')).json();
    $('slots').replaceChildren(...slots.map(slotCard));
  } catch (error) {
    $('slots').textContent = error.message;
  }
}

// --- the page ---

function toggle(id, show = $(id).hidden) {
  $(id).hidden = !show;
  $(`show-${id}`).setAttribute('aria-expanded', String(show));
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem('theme', name);
}

theme(localStorage.getItem('theme') ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'));
for (const id of SETTINGS) {
  $(id).value = localStorage.getItem(id) ?? '';
  $(id).onchange = () => localStorage.setItem(id, $(id).value);
}
$('key').value = sessionStorage.getItem('key') ?? '';
$('key').onchange = () => {
  sessionStorage.setItem('key', $('key').value.trim());
  describe().catch((error) => ($('model').textContent = error.message));
};
$('theme').onclick = () => theme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark');
$('show-settings').onclick = () => toggle('settings');
$('show-slots').onclick = () => { toggle('slots'); pollSlots(); };
$('new').onclick = () => { running?.abort(); messages = []; $('log').replaceChildren(); $('prompt').focus(); };
$('settings').onsubmit = (event) => event.preventDefault();
$('composer').onsubmit = (event) => { event.preventDefault(); send(); };
$('prompt').oninput = fit;
$('prompt').onkeydown = (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!running) send();
};
setInterval(pollSlots, POLL_MS);
await untilReady();
await describe().catch((error) => ($('model').textContent = error.message));
