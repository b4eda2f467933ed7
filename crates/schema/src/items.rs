//! Rules for arrays.

use std::collections::HashMap;

use serde_json::Value;

use crate::equality::{is_equal, size};
use crate::evaluate::{Evaluated, Evaluator, Location, Truth};
use crate::marks::Marks;
use crate::message::{Unexpected, counted};
use crate::program::{Keyword, NodeId};

impl Evaluator<'_, '_, '_> {
    pub(crate) fn array(
        &mut self,
        keyword: &Keyword<'_>,
        items: &[Value],
        value: &Value,
        location: &Location<'_>,
        marks: &mut Marks,
    ) -> Evaluated<Truth> {
        let count = items.len() as u64;
        match keyword {
            Keyword::MinItems(min) if count < *min => {
                let words = counted(*min, "item", "items");
                self.violation(location, format_args!("{value} has less than {words}"))
            }
            Keyword::MaxItems(max) if count > *max => {
                let words = counted(*max, "item", "items");
                self.violation(location, format_args!("{value} has more than {words}"))
            }
            Keyword::UniqueItems => match self.has_equal_items(items)? {
                true => self.violation(location, format_args!("{value} has non-unique elements")),
                false => Ok(Truth::Yes),
            },
            Keyword::Items { first, rest } => self.items(first, *rest, items, location, marks),
            Keyword::Contains { node, min, max, marks: is_marking } => {
                let bounds = (*min, *max);
                let found = if *is_marking { Some(marks) } else { None };
                self.contains(*node, bounds, items, value, location, found)
            }
            Keyword::UnevaluatedItems(node) => self.unevaluated_items(*node, items, location, marks),
            _ => Ok(Truth::Yes),
        }
    }

    fn has_equal_items(&mut self, items: &[Value]) -> Evaluated<bool> {
        let mut seen: HashMap<u64, Vec<usize>> = HashMap::with_capacity(items.len());
        for (location, item) in items.iter().enumerate() {
            self.steps.take(1 + size(item))?;
            let same_hash = seen.entry(self.program.hasher.hash(item)).or_default();
            // Nearly always none.
            self.steps.take(same_hash.len())?;
            if same_hash.iter().any(|earlier| is_equal(&items[*earlier], item)) {
                return Ok(true);
            }
            same_hash.push(location);
        }
        Ok(false)
    }

    fn items(
        &mut self,
        first: &[NodeId],
        rest: Option<NodeId>,
        items: &[Value],
        location: &Location<'_>,
        marks: &mut Marks,
    ) -> Evaluated<Truth> {
        let mut truth = Truth::Yes;
        for (number, (item, node)) in items.iter().zip(first).enumerate() {
            truth = truth.and(self.apply(*node, item, &location.item(number))?.0);
            marks.add(number);
        }
        let Some(rest) = rest else { return Ok(truth) };
        if self.is_false(rest) && items.len() > first.len() {
            let unexpected = &items[first.len()..];
            return self
                .violation(location, format_args!("Additional items are not allowed ({})", Unexpected(unexpected)));
        }
        for (number, item) in items.iter().enumerate().skip(first.len()) {
            self.steps.take(1)?;
            truth = truth.and(self.apply(rest, item, &location.item(number))?.0);
            if truth == Truth::No && self.is_quiet() {
                return Ok(truth);
            }
        }
        marks.add_all();
        Ok(truth)
    }

    fn contains(
        &mut self,
        node: NodeId,
        (min, max): (u64, Option<u64>),
        items: &[Value],
        value: &Value,
        location: &Location<'_>,
        mut marks: Option<&mut Marks>,
    ) -> Evaluated<Truth> {
        let (mut fitting, mut unknown) = (0, 0);
        for (number, item) in items.iter().enumerate() {
            self.steps.take(1)?;
            match self.apply_quietly(node, item, &location.item(number))?.0 {
                Truth::Yes => {
                    fitting += 1;
                    if let Some(marks) = &mut marks {
                        marks.add(number);
                    }
                }
                Truth::Unknown => unknown += 1,
                Truth::No => {}
            }
        }
        if unknown > 0
            && let Some(marks) = marks
        {
            marks.is_uncertain = true;
        }
        if max.is_some_and(|max| fitting > max) {
            return self
                .violation(location, format_args!("Too many items of {value} are valid under the given schema"));
        }
        if fitting + unknown < min {
            let message = match fitting {
                0 => format_args!("None of {value} are valid under the given schema"),
                _ => format_args!("Too few items of {value} are valid under the given schema"),
            };
            return self.violation(location, message);
        }
        let is_known = fitting >= min && max.is_none_or(|max| fitting + unknown <= max);
        Ok(if is_known { Truth::Yes } else { Truth::Unknown })
    }

    fn unevaluated_items(
        &mut self,
        node: NodeId,
        items: &[Value],
        location: &Location<'_>,
        marks: &mut Marks,
    ) -> Evaluated<Truth> {
        self.steps.take(items.len())?;
        let left: Vec<usize> = (0..items.len()).filter(|number| !marks.has(*number)).collect();
        if left.is_empty() {
            marks.add_all();
            return Ok(Truth::Yes);
        }
        // Something that was not checked may have evaluated them.
        if marks.is_uncertain {
            return Ok(Truth::Unknown);
        }
        if self.is_false(node) {
            let unexpected: Vec<&Value> = left.iter().map(|number| &items[*number]).collect();
            let message = format_args!("Unevaluated items are not allowed ({})", Unexpected(&unexpected));
            return self.violation(location, message);
        }
        let mut truth = Truth::Yes;
        for number in left {
            truth = truth.and(self.apply(node, &items[number], &location.item(number))?.0);
        }
        marks.add_all();
        Ok(truth)
    }

    pub(crate) fn is_false(&self, node: NodeId) -> bool {
        self.program.nodes[node].schema == &Value::Bool(false)
    }
}
