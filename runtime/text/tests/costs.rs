//! What a hostile template costs before it is refused: a moment, and little memory. The one test of this program, so that
//! the process's memory is the template's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::time::{Duration, Instant};

use bantam_text::{ChatTemplate, RenderInput, local_now};
use serde_json::json;

/// A list of two lists of two lists … : 2²⁵ texts in 26 values.
const NESTED: &str =
    "{% set ns = namespace(x=['x']) %}{% for i in range(25) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
/// A list that has one long text 512 times.
const LONG: &str = "{% set s = 'x' * 1000000 %}{% set ns = namespace(x=[s, s]) %}\
    {% for i in range(8) %}{% set ns.x = ns.x + ns.x %}{% endfor %}";

/// Ways to compare, look up, hash or write out the whole of a value.
const WHOLE: [&str; 39] = [
    "{{ ns.x }}",
    "{{ ns.x ~ '' }}",
    "{{ '' ~ ns.x }}",
    "{{ ns.x|string }}",
    "{{ ns.x|tojson }}",
    "{{ ns.x|tojson(indent=4) }}",
    "{{ ns.x|trim }}",
    "{{ ns.x|join }}",
    "{{ ns.x|upper }}",
    "{{ ns.x|title }}",
    "{{ ns.x|escape }}",
    "{{ ns.x|pprint }}",
    "{{ ns.x|indent }}",
    "{{ ns.x|replace('x', 'y') }}",
    "{{ ns.x|first ~ 'a' }}",
    "{{ [ns.x]|map('string')|list }}",
    "{{ [ns.x]|unique|list }}",
    "{{ [ns.x, [ns.x]]|sort }}",
    "{{ [ns.x, [ns.x]]|max }}",
    "{{ '%s'|format(ns.x) }}",
    "{{ '{}'.format(ns.x) }}",
    "{{ '{0}{0}{0}'.format(ns.x|string) }}",
    "{{ ''.join([ns.x]) }}",
    "{{ [ns.x].count(ns.x) }}",
    "{{ ns.x == [ns.x, ns.x] }}",
    "{{ ns.x == [1, ns.x] == ns.x }}",
    "{{ ns.x in [1, [ns.x]] }}",
    "{{ ns.x in 'abc' }}",
    "{{ ns.x is eq([ns.x, ns.x]) }}",
    "{{ ns.x is in([[ns.x]]) }}",
    "{{ {ns.x: 1} }}",
    "{{ {'a': 1}[ns.x] }}",
    "{{ {'a': 1}.get(ns.x) }}",
    "{{ dict(a=ns.x)|dictsort }}",
    "{{ raise_exception(ns.x) }}",
    "{{ ns.x|urlencode }}",
    "{{ debug() }}",
    "{% for a in [1, 2] %}{{ loop.changed(ns.x) }}{% endfor %}",
    "{% macro f(x) %}{{ x }}{% endmacro %}{{ f(ns.x) }}",
];

const OTHERS: [&str; 27] = [
    "{{ 'x ' * 9000000 }}",
    "{% set s = 'x ' * 7000000 %}{{ s.split()|length }}",
    "{% set s = 'x ' * 7000000 %}{{ s.split(' ')|length }}",
    "{% set s = 'x\n' * 7000000 %}{{ s.splitlines()|length }}",
    "{% set s = 'x ' * 7000000 %}{{ s|list|length }}",
    "{{ '{:>999999999}'.format(1) }}",
    "{{ '{:>{}}'.format(1, 999999999) }}",
    "{{ '%999999999d'|format(1) }}",
    "{{ '%.999999999f'|format(1.5) }}",
    "{{ strftime_now('%A ' * 5000000) }}",
    "{{ range(1000)|list|tojson(separators=('x' * 3000000, 'x' * 3000000)) }}",
    "{{ range(1000)|list|tojson(indent='x' * 3000000) }}",
    "{{ range(1000)|join('x' * 3000000) }}",
    "{{ ('x' * 3000000).replace('', 'x' * 3000000) }}",
    "{{ ([1] * 999999999) ~ '' }}",
    "{{ range(99999)|list * 99999 }}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x|length }}",
    "{% set ns = namespace(x='x') %}{% for i in range(60) %}{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}{% endfor %}",
    "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
    "{% macro f(n) %}{{ caller(n) }}{{ f(n + 1) }}{% endmacro %}{% call(x) f(0) %}{{ 'x' * 100000 }}{% endcall %}",
    "{% set s = 'x' * 8000000 %}{% for i in range(90000) %}{% set t = s[1:2] %}{% endfor %}",
    "{% set s = 'x' * 8000000 %}{% for i in range(90000) %}{% set t = s[-1] %}{% endfor %}",
    "{% set s = 'x' * 8000000 %}{% for i in range(90000) %}{% set t = s is lower %}{% endfor %}",
    "{% set s = 'x' * 8000000 %}{% for i in range(90000) %}{% set t = {s: 1} %}{% endfor %}",
    "{% set s = 'x' * 8000000 %}{% for i in range(90000) %}{% for c in s %}{% break %}{% endfor %}{% endfor %}",
    "{% set s = 'x' * 4000000 %}{% set t = s ~ 'a' %}{% for i in range(90000) %}{% if s < t %}{% endif %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% set x = messages|tojson %}{% endfor %}{% endfor %}",
];

#[test]
fn hostile_templates_are_refused_before_they_cost_much() {
    let whole = [NESTED, LONG].into_iter().flat_map(|x| WHOLE.iter().map(move |way| format!("{x}{way}")));
    for source in whole.chain(OTHERS.iter().map(|&source| source.to_owned())) {
        let begin = Instant::now();
        let input = RenderInput { messages: vec![json!({"role": "user", "content": "hi"})], ..RenderInput::default() };
        let outcome = ChatTemplate::new(&source, &[]).and_then(|template| template.render(&input, local_now()));
        if let Ok(text) = &outcome {
            assert!(text.len() < 2_000_000, "{source}: {} bytes", text.len());
        }
        // A tenth of it where nothing else runs.
        assert!(begin.elapsed() < Duration::from_secs(5), "{source}: {:?}", begin.elapsed());
        let peak = peak_bytes();
        assert!(peak.is_none_or(|bytes| bytes < 200 << 20), "{source}: {peak:?} bytes");
    }
}

/// The most memory that this process has had, where the system tells.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}
