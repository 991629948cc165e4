//! What two streams must share to be answers to one question.

use std::collections::BTreeMap;

use super::report::Difference;
use crate::bench::records::Generation;
use crate::trace::TraceHeader;

/// The fields, in the order in which a difference is reported.
pub const FIELDS: [&str; 8] = [
    "model_sha256",
    "workload_id",
    "lane",
    "formatter",
    "sampling",
    "stop_rule",
    "seed",
    "max_tokens",
];

/// The fields that a trace or a record states. `-` and nothing state nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contract {
    stated: BTreeMap<&'static str, String>,
}

impl Contract {
    /// What a trace's header states.
    #[must_use]
    pub fn of_header(header: &TraceHeader) -> Self {
        let own = [
            ("model_sha256", &header.model_sha256),
            ("workload_id", &header.workload_id),
            ("lane", &header.lane),
        ];
        let more = header.more.iter().map(|(key, value)| (key.as_str(), value));
        let mut contract = Contract::default();
        for (key, value) in own.into_iter().chain(more) {
            contract.state(key, value);
        }
        contract
    }

    /// What a record states.
    #[must_use]
    pub fn of_record(record: &Generation) -> Self {
        let digest = record.model_sha256.clone().unwrap_or_default();
        let mut contract = Contract::default();
        for (key, value) in [
            ("model_sha256", &digest),
            ("workload_id", &record.workload_id),
            ("lane", &record.lane),
            ("formatter", &record.formatter),
            ("sampling", &record.sampling),
            ("stop_rule", &record.stop_rule),
            ("seed", &record.seed.to_string()),
            ("max_tokens", &record.max_tokens.to_string()),
        ] {
            contract.state(key, value);
        }
        contract
    }

    fn state(&mut self, key: &str, value: &str) {
        let field = FIELDS.into_iter().find(|field| *field == key);
        let is_said = !value.is_empty() && value != "-";
        if let Some(field) = field.filter(|_| is_said) {
            let value = match field {
                "model_sha256" => value.to_ascii_lowercase(),
                _ => value.to_owned(),
            };
            self.stated.insert(field, value);
        }
    }

    /// A field, if it is stated.
    #[must_use]
    pub fn get(&self, field: &str) -> Option<&str> {
        self.stated.get(field).map(String::as_str)
    }

    /// With what another states of the fields that this one does not.
    #[must_use]
    pub fn or(mut self, other: Contract) -> Self {
        for (field, value) in other.stated {
            self.stated.entry(field).or_insert(value);
        }
        self
    }

    /// The first field that both state and in which they differ.
    #[must_use]
    pub fn difference(&self, other: &Contract) -> Option<Difference> {
        FIELDS.into_iter().find_map(|field| {
            let (a, b) = (self.get(field)?, other.get(field)?);
            (a != b).then(|| Difference {
                field: field.to_owned(),
                a: a.to_owned(),
                b: b.to_owned(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(more: &[(&str, &str)]) -> TraceHeader {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        TraceHeader {
            model_sha256: "AB".to_owned(),
            workload_id: "w".to_owned(),
            lane: "-".to_owned(),
            more: more.iter().map(own).collect(),
            ..TraceHeader::default()
        }
    }

    #[test]
    fn only_what_both_state_can_differ() {
        let a = Contract::of_header(&header(&[("sampling", "argmax"), ("isa_note", "x")]));
        let b = Contract::of_header(&header(&[("stop_rule", "eog"), ("isa_note", "y")]));
        assert_eq!(a.difference(&b), None);
        assert_eq!((a.get("lane"), a.get("isa_note")), (None, None));
        assert_eq!(a.get("model_sha256"), Some("ab"));
        let record = Generation {
            workload_id: "w".to_owned(),
            lane: "single".to_owned(),
            sampling: "chain".to_owned(),
            max_tokens: 7,
            ..Generation::default()
        };
        let c = Contract::of_record(&record);
        let found = a.difference(&c).unwrap();
        assert_eq!(
            (&*found.field, &*found.a, &*found.b),
            ("sampling", "argmax", "chain")
        );
        let filled = b.or(a);
        assert_eq!(filled.get("stop_rule"), Some("eog"));
        assert_eq!(filled.get("sampling"), Some("argmax"));
        assert_eq!(c.get("max_tokens"), Some("7"));
    }

    #[test]
    fn the_gravest_difference_is_reported() {
        let a = Contract::of_header(&header(&[("seed", "1"), ("formatter", "raw")]));
        let mut other = header(&[("seed", "2"), ("formatter", "template")]);
        let b = Contract::of_header(&other);
        assert_eq!(a.difference(&b).unwrap().field, "formatter");
        other.model_sha256 = "cd".to_owned();
        let b = Contract::of_header(&other);
        assert_eq!(a.difference(&b).unwrap().field, "model_sha256");
    }
}
