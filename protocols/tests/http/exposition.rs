//! Prometheus' text format as strict readers read it: each name once, its help and type before its samples, and no sample
//! of another name among them.

use std::collections::BTreeMap;

pub(crate) type Labels = BTreeMap<String, String>;

#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) help: String,
    pub(crate) kind: String,
    samples: Vec<(String, Labels, f64)>,
}

#[derive(Debug)]
pub(crate) struct Exposition {
    pub(crate) families: Vec<Family>,
}

impl Exposition {
    pub(crate) fn parse(text: &str) -> Exposition {
        let mut families: Vec<Family> = Vec::new();
        assert!(text.ends_with('\n'), "the last line has an end");
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(families.iter().all(|family| family.name != name), "{name} is told twice");
                let (name, help) = (name.to_owned(), help.to_owned());
                families.push(Family { name, help, kind: String::new(), samples: Vec::new() });
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                let family = families.last_mut().unwrap();
                assert!(family.name == name && family.kind.is_empty(), "{line}");
                family.kind = kind.to_owned();
            } else {
                families.last_mut().unwrap().sample(line);
            }
        }
        families.iter().for_each(Family::check);
        Exposition { families }
    }

    pub(crate) fn family(&self, name: &str) -> &Family {
        self.families.iter().find(|family| family.name == name).unwrap_or_else(|| panic!("no {name}"))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.families.iter().any(|family| family.name == name)
    }

    /// The one value of this name whose labels include these.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let samples = self.families.iter().flat_map(|family| &family.samples);
        let has = |of: &Labels| labels.iter().all(|(key, value)| of.get(*key).is_some_and(|v| v == value));
        let found: Vec<_> = samples.filter(|(of, has_labels, _)| of == name && has(has_labels)).collect();
        assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
        found[0].2
    }
}

impl Family {
    /// The labels of its one sample.
    pub(crate) fn labels(&self) -> &Labels {
        assert_eq!(self.samples.len(), 1, "{self:?}");
        &self.samples[0].1
    }

    pub(crate) fn all_labels(&self) -> impl Iterator<Item = &Labels> {
        self.samples.iter().map(|(_, labels, _)| labels)
    }

    fn sample(&mut self, line: &str) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').unwrap()),
            None => (series, ""),
        };
        let label = |pair: &str| {
            let (key, value) = pair.split_once("=\"").unwrap();
            (key.to_owned(), value.strip_suffix('"').unwrap().to_owned())
        };
        let labels = labels.split(',').filter(|pair| !pair.is_empty()).map(label).collect();
        let suffix = name.strip_prefix(self.name.as_str()).unwrap_or_else(|| panic!("{line} among {}", self.name));
        let suffixes: &[&str] = if self.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(suffixes.contains(&suffix), "{line}");
        self.samples.push((name.to_owned(), labels, value.parse().unwrap()));
    }

    fn check(&self) {
        assert!(!self.help.is_empty() && !self.samples.is_empty(), "{self:?}");
        match self.kind.as_str() {
            "counter" => assert!(self.name.ends_with("_total"), "{}", self.name),
            "gauge" => assert!(!self.name.ends_with("_total"), "{}", self.name),
            "histogram" => self.check_buckets(),
            kind => panic!("{}: a {kind}", self.name),
        }
    }

    fn check_buckets(&self) {
        let of = |suffix: &'static str| self.samples.iter().filter(move |(name, ..)| name.ends_with(suffix));
        let bound = |labels: &Labels| labels["le"].replace('+', "").parse::<f64>().unwrap();
        let buckets: Vec<_> = of("_bucket").map(|(_, labels, count)| (bound(labels), *count)).collect();
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{}: {buckets:?}", self.name);
        let (last, count) = (buckets.last().unwrap(), of("_count").next().unwrap().2);
        assert!(last.0.is_infinite() && (last.1 - count).abs() < f64::EPSILON, "{}: {buckets:?}", self.name);
        assert_eq!(of("_sum").count(), 1);
    }
}
