//! Rules for objects.

use serde_json::{Map, Value};

use crate::evaluate::{Evaluated, Evaluator, Location, Truth};
use crate::marks::Marks;
use crate::message::{Unexpected, counted};
use crate::program::{Keyword, Members, NodeId};

impl Evaluator<'_, '_, '_> {
    pub(crate) fn object(
        &mut self,
        keyword: &Keyword<'_>,
        members: &Map<String, Value>,
        value: &Value,
        location: &Location<'_>,
        marks: &mut Marks,
    ) -> Evaluated<Truth> {
        let count = members.len() as u64;
        match keyword {
            Keyword::MinProperties(min) if count < *min => {
                let words = counted(*min, "property", "properties");
                self.violation(location, format_args!("{value} has less than {words}"))
            }
            Keyword::MaxProperties(max) if count > *max => {
                let words = counted(*max, "property", "properties");
                self.violation(location, format_args!("{value} has more than {words}"))
            }
            Keyword::Required(names) => self.required(names, members, location),
            Keyword::PropertyNames(node) => {
                let mut truth = Truth::Yes;
                for name in members.keys() {
                    self.steps.take(1 + name.len() / 64)?;
                    truth = truth.and(self.apply(*node, &Value::String(name.clone()), location)?.0);
                }
                Ok(truth)
            }
            Keyword::Members(rules) => self.members(rules, members, location, marks),
            Keyword::DependentRequired(dependencies) => {
                let mut truth = Truth::Yes;
                for (name, names) in dependencies {
                    self.steps.take(1)?;
                    if members.contains_key(*name) {
                        truth = truth.and(self.required(names, members, location)?);
                    }
                }
                Ok(truth)
            }
            Keyword::DependentSchemas(dependencies) => {
                let mut truth = Truth::Yes;
                for (name, node) in dependencies {
                    self.steps.take(1)?;
                    if members.contains_key(*name) {
                        truth = truth.and(self.apply_here(*node, value, location, marks)?);
                    }
                }
                Ok(truth)
            }
            Keyword::UnevaluatedProperties(node) => self.unevaluated_properties(*node, members, location, marks),
            _ => Ok(Truth::Yes),
        }
    }

    fn required(&mut self, names: &[&str], members: &Map<String, Value>, location: &Location<'_>) -> Evaluated<Truth> {
        let mut truth = Truth::Yes;
        for name in names {
            self.steps.take(1)?;
            if !members.contains_key(*name) {
                truth = self.violation(location, format_args!("{} is a required property", Value::from(*name)))?;
            }
        }
        Ok(truth)
    }

    fn members(
        &mut self,
        rules: &Members<'_>,
        members: &Map<String, Value>,
        location: &Location<'_>,
        marks: &mut Marks,
    ) -> Evaluated<Truth> {
        let is_simple = rules.patterns.is_empty() && rules.additional.is_none() && !self.program.needs_marks;
        let mut truth = Truth::Yes;
        if is_simple && rules.named.len() < members.len() {
            for (name, node) in &rules.named {
                self.steps.take(1)?;
                if let Some(value) = members.get(*name) {
                    truth = truth.and(self.apply(*node, value, &location.member(name))?.0);
                }
            }
            return Ok(truth);
        }
        let is_closed = rules.additional.is_some_and(|node| self.is_false(node));
        let mut unexpected = Vec::new();
        for (number, (name, value)) in members.iter().enumerate() {
            self.steps.take(1)?;
            let here = location.member(name);
            let mut is_named = Truth::No;
            if let Some(node) = rules.named.get(name.as_str()) {
                is_named = Truth::Yes;
                truth = truth.and(self.apply(*node, value, &here)?.0);
            }
            for (pattern, node) in &rules.patterns {
                match self.matches(*pattern, name)? {
                    Truth::Yes => {
                        is_named = Truth::Yes;
                        truth = truth.and(self.apply(*node, value, &here)?.0);
                    }
                    Truth::Unknown => {
                        truth = truth.and(Truth::Unknown);
                        is_named = if is_named == Truth::Yes { Truth::Yes } else { Truth::Unknown };
                    }
                    Truth::No => {}
                }
            }
            match (is_named, rules.additional) {
                (Truth::Yes, _) => marks.add(number),
                (Truth::No, Some(_)) if is_closed => unexpected.push(name.as_str()),
                (Truth::No, Some(node)) => {
                    truth = truth.and(self.apply(node, value, &here)?.0);
                    marks.add(number);
                }
                (Truth::Unknown, _) => marks.is_uncertain = true,
                (Truth::No, None) => {}
            }
            if (truth == Truth::No || !unexpected.is_empty()) && self.is_quiet() {
                return Ok(Truth::No);
            }
        }
        if let Some(first) = unexpected.first() {
            let message = format_args!("Additional properties are not allowed ({})", Unexpected(&unexpected));
            return self.violation_of(location, message, Some(first), Vec::new());
        }
        Ok(truth)
    }

    fn unevaluated_properties(
        &mut self,
        node: NodeId,
        members: &Map<String, Value>,
        location: &Location<'_>,
        marks: &mut Marks,
    ) -> Evaluated<Truth> {
        self.steps.take(members.len())?;
        let left = || members.iter().enumerate().filter(|(number, _)| !marks.has(*number)).map(|(_, member)| member);
        if left().next().is_none() {
            marks.add_all();
            return Ok(Truth::Yes);
        }
        // Something that was not checked may have evaluated them.
        if marks.is_uncertain {
            return Ok(Truth::Unknown);
        }
        if self.is_false(node) {
            let unexpected: Vec<&str> = left().map(|(name, _)| name.as_str()).collect();
            let message = format_args!("Unevaluated properties are not allowed ({})", Unexpected(&unexpected));
            return self.violation_of(location, message, unexpected.first().copied(), Vec::new());
        }
        let mut truth = Truth::Yes;
        for (name, value) in left() {
            truth = truth.and(self.apply(node, value, &location.member(name))?.0);
        }
        marks.add_all();
        Ok(truth)
    }
}
