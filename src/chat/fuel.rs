//! What work costs: every charge against [`Limits::fuel`](super::Limits::fuel) that the chat
//! module makes goes through [`pay`].
//!
//! The engine charges for instructions, for the text a filter or a method is called on and for
//! the strings, lists and maps that result. It does not charge for other arguments, for the items
//! of a list a method or a test looks through, for what comparing two values reads, or for a
//! method that was named before it was called, and it says that its charges may change. So all
//! that is not constant-time is paid for here too, at worst twice.

use std::cmp::Ordering;

use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, State, filters, tests};

use super::methods;
use super::value::{
    MAX_DEPTH, fail, is_generator, is_namespace, is_range_object, to_text, too_deep,
};

/// Bytes that a unit of fuel pays for.
const UNIT: usize = 64;
/// What visiting an item of a list costs, in bytes.
pub(super) const ITEM: usize = 32;

/// Pays for reading or making so many bytes.
///
/// Less than a unit is free: the instruction that asked for it has paid one.
pub(super) fn pay(state: &State<'_, '_>, bytes: usize) -> Result<(), Error> {
    state.consume_fuel((bytes / UNIT) as u64)
}

/// Pays for reading the texts among the values.
pub(super) fn pay_texts<'v>(
    state: &State<'_, '_>,
    values: impl IntoIterator<Item = &'v Value>,
) -> Result<(), Error> {
    let texts = values.into_iter().filter_map(Value::as_str);
    pay(state, texts.map(str::len).sum())
}

/// Pays for going `times` through the value and all it holds, as printing, hashing, comparing do.
pub(super) fn weigh(state: &State<'_, '_>, value: &Value, times: usize) -> Result<(), Error> {
    let mut weigher = Weigher::reading(state);
    weigher.times = times as u64;
    weigher.visit(value, 0)?;
    weigher.finish()
}

/// Whether the list holds the value, and where first.
pub(super) fn position(
    state: &State<'_, '_>,
    list: &Value,
    what: &Value,
) -> Result<Option<usize>, Error> {
    let mut weigher = Weigher::reading(state);
    for (at, item) in list.try_iter()?.enumerate() {
        if weigher.equal(&item, what)? {
            return Ok(Some(at));
        }
    }
    weigher.finish().map(|()| None)
}

/// Walks values and pays for what they hold.
pub(super) struct Weigher<'a, 't, 'e> {
    state: &'a State<'t, 'e>,
    /// Sixteenths of a byte not paid for yet.
    weight: u64,
    /// Sixteenths of a byte that a node costs.
    node: u64,
    /// The same of a byte of text.
    text: u64,
    /// How often all is walked.
    times: u64,
    plain: bool,
}

impl<'a, 't, 'e> Weigher<'a, 't, 'e> {
    /// One that asks only how large a value is; texts, which it does not read, cost little.
    pub fn sizing(state: &'a State<'t, 'e>, plain: bool) -> Self {
        Weigher {
            state,
            weight: 0,
            node: 16 * ITEM as u64,
            text: 1,
            times: 1,
            plain,
        }
    }

    /// One for work that reads all of the value.
    pub fn reading(state: &'a State<'t, 'e>) -> Self {
        Weigher {
            text: 16,
            ..Weigher::sizing(state, false)
        }
    }

    fn add(&mut self, weight: u64) -> Result<(), Error> {
        self.weight = self
            .weight
            .saturating_add(weight.saturating_mul(self.times));
        if self.weight >= 8 * 1024 {
            self.finish()?;
        }
        Ok(())
    }

    /// Pays for what is left.
    pub fn finish(&mut self) -> Result<(), Error> {
        pay(self.state, (self.weight / 16) as usize)?;
        self.weight = 0;
        Ok(())
    }

    /// Compares, having paid for it.
    pub fn equal(&mut self, a: &Value, b: &Value) -> Result<bool, Error> {
        self.comparison(a, b)?;
        Ok(a == b)
    }

    /// Pays for comparing two values.
    pub fn comparison(&mut self, a: &Value, b: &Value) -> Result<(), Error> {
        match (a.as_str(), b.as_str()) {
            (Some(a), Some(b)) => self.add(
                self.node
                    .saturating_add(self.text * a.len().min(b.len()) as u64),
            ),
            (None, None) if a.as_object().is_some() && b.as_object().is_some() => self.visit(a, 0),
            _ => self.add(self.node),
        }
    }

    /// Pays for a value and all it holds.
    pub fn visit(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let length = value.as_str().map_or(0, str::len) as u64;
        self.add(self.node.saturating_add(length.saturating_mul(self.text)))?;
        if !matches!(
            value.kind(),
            ValueKind::Seq | ValueKind::Map | ValueKind::Iterable
        ) || is_generator(value)
        {
            return Ok(());
        }
        if is_range_object(value) {
            // to keep it is nothing, to read it is to make all its numbers
            let length = value.len().unwrap_or(0) as u64;
            return match self.text {
                1 => Ok(()),
                _ => self.add(self.node.saturating_mul(length)),
            };
        }
        if depth >= MAX_DEPTH {
            return Err(too_deep());
        }
        if self.plain && is_namespace(value) {
            return Err(fail(
                "a namespace cannot hold a namespace: it could hold itself",
            ));
        }
        let map = value.kind() == ValueKind::Map;
        for item in value.try_iter()? {
            if map {
                self.visit(&value.get_item(&item)?, depth + 1)?;
            }
            self.visit(&item, depth + 1)?;
        }
        Ok(())
    }
}

/// The items as a list, having paid for comparing each with as many others as sorting does.
///
/// The engine charges a comparison alike whatever it compares.
fn sortable(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    let items = filters::list(state, value)?;
    pay_sort(state, &items)?;
    Ok(items)
}

/// Pays for sorting what the value holds.
pub(super) fn pay_sort(state: &State<'_, '_>, items: &Value) -> Result<(), Error> {
    let length = items.len().unwrap_or(0);
    weigh(
        state,
        items,
        (usize::BITS - length.leading_zeros()) as usize,
    )
}

/// Puts the engine's own filters and tests that do unpaid work behind payment.
pub(super) fn guard(env: &mut Environment<'_>) {
    env.add_filter("sort", |state: &State, v: Value, named: Kwargs| {
        filters::sort(state, sortable(state, v)?, named)
    });
    env.add_filter("unique", |state: &State, v: Value, named: Kwargs| {
        filters::unique(state, sortable(state, v)?, named)
    });
    env.add_filter("min", |state: &State, v: Value, named: Kwargs| {
        filters::min(state, sortable(state, v)?, named)
    });
    env.add_filter("max", |state: &State, v: Value, named: Kwargs| {
        filters::max(state, sortable(state, v)?, named)
    });
    env.add_filter(
        "groupby",
        |state: &State, v: Value, attribute: Option<&str>, named: Kwargs| {
            let items = sortable(state, v)?;
            filters::groupby(items, attribute, named)
        },
    );
    env.add_filter("sum", sum);
    env.add_filter("pprint", |state: &State, v: &Value| {
        weigh(state, v, 1)?;
        Ok::<_, Error>(filters::pprint(v))
    });
    env.add_filter(
        "format",
        |state: &mut State, v: &Value, args: Rest<ValueOrKwargs>| {
            for arg in args.iter() {
                weigh(state, arg, 1)?;
            }
            filters::format(state, v, args)
        },
    );
    env.add_filter(
        "split",
        |state: &State, v: &Value, sep: Option<&Value>, max: Option<i64>| {
            pay_texts(state, [Some(v), sep].into_iter().flatten())?;
            let sep = match sep.filter(|sep| !sep.is_none() && !sep.is_undefined()) {
                Some(sep) => Some(to_text(state, sep)?.into()),
                None => None,
            };
            filters::split(v, sep, max)
        },
    );
    env.add_filter("replace", replace);
    test_text(env, "lower", tests::is_lower);
    test_text(env, "upper", tests::is_upper);
    for (name, at_start) in [("startingwith", true), ("endingwith", false)] {
        env.add_test(name, move |state: &State, v: &Value, affix: &Value| {
            let (text, affix) = (to_text(state, v)?, to_text(state, affix)?);
            Ok::<_, Error>(if at_start {
                text.starts_with(&affix)
            } else {
                text.ends_with(&affix)
            })
        });
    }
    for name in ["eq", "equalto", "=="] {
        test_pair(env, name, |a, b| a == b);
    }
    for name in ["ne", "!="] {
        test_pair(env, name, |a, b| a != b);
    }
    for name in ["lt", "lessthan", "<"] {
        test_pair(env, name, |a, b| a.cmp(b) == Ordering::Less);
    }
    for name in ["le", "<="] {
        test_pair(env, name, |a, b| a.cmp(b) != Ordering::Greater);
    }
    for name in ["gt", "greaterthan", ">"] {
        test_pair(env, name, |a, b| a.cmp(b) == Ordering::Greater);
    }
    for name in ["ge", ">="] {
        test_pair(env, name, |a, b| a.cmp(b) != Ordering::Less);
    }
    test_pair(env, "sameas", tests::is_sameas);
    env.add_test("in", |state: &State, v: &Value, all: &Value| {
        pay_texts(state, [v, all])?;
        match all.kind() {
            ValueKind::Seq | ValueKind::Iterable => position(state, all, v).map(|at| at.is_some()),
            _ => {
                weigh(state, v, 1)?;
                tests::is_in(state, v, all)
            }
        }
    });
}

fn test_text(env: &mut Environment<'_>, name: &'static str, test: fn(&Value) -> bool) {
    env.add_test(name, move |state: &State, v: &Value| {
        pay_texts(state, [v])?;
        Ok::<_, Error>(test(v))
    });
}

fn test_pair(env: &mut Environment<'_>, name: &'static str, test: fn(&Value, &Value) -> bool) {
    env.add_test(name, move |state: &State, a: &Value, b: &Value| {
        let mut weigher = Weigher::reading(state);
        weigher.comparison(a, b)?;
        weigher.finish()?;
        Ok::<_, Error>(test(a, b))
    });
}

/// `x | sum(attribute=None, start=0)`: texts and lists are copied whole for every one added.
fn sum(
    state: &State,
    value: Value,
    attribute: Option<&str>,
    start: Option<Value>,
    named: Kwargs,
) -> Result<Value, Error> {
    let start = match start {
        Some(start) => start,
        None => named
            .get::<Option<Value>>("start")?
            .unwrap_or_else(|| Value::from(0)),
    };
    let items = filters::list(state, value)?;
    if !start.is_number() {
        let length = items.len().unwrap_or(0);
        weigh(state, &start, length)?;
        weigh(state, &items, length)?;
    }
    filters::sum(state, items, attribute, Some(start), named)
}

/// `x | replace(old, new, count=None)`.
fn replace(
    state: &State,
    value: &Value,
    old: &Value,
    new: &Value,
    rest: Rest<ValueOrKwargs>,
) -> Result<String, Error> {
    let rest = rest.into_values();
    let (count, named): (Option<i64>, Kwargs) = minijinja::value::from_args(&rest)?;
    let count = count.or(named.get("count")?).unwrap_or(-1);
    named.assert_all_used()?;
    let (text, old, new) = (
        to_text(state, value)?,
        to_text(state, old)?,
        to_text(state, new)?,
    );
    methods::replace(state, &text, &old, &new, count)
}
