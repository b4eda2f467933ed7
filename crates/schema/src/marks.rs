//! Which members or items of a value were evaluated, for `unevaluatedProperties` and `unevaluatedItems`.

/// A set of places in an object or an array.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks {
    is_all: bool,
    words: Vec<u64>,
    /// Something that could have evaluated more was not checked.
    pub(crate) is_uncertain: bool,
}

impl Marks {
    /// Marks everything.
    pub(crate) fn add_all(&mut self) {
        self.is_all = true;
        self.words = Vec::new();
    }

    pub(crate) fn add(&mut self, index: usize) {
        if self.is_all {
            return;
        }
        let word = index / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (index % 64);
    }

    pub(crate) fn has(&self, index: usize) -> bool {
        self.is_all || self.words.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// About how much work it is to add these to others.
    pub(crate) fn size(&self) -> usize {
        self.words.len() / 8
    }

    pub(crate) fn add_others(&mut self, other: Self) {
        self.is_uncertain |= other.is_uncertain;
        if other.is_all {
            self.add_all();
        }
        if self.is_all {
            return;
        }
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, more) in self.words.iter_mut().zip(other.words) {
            *word |= more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Marks;

    #[test]
    fn marks_are_added_up() {
        let (mut one, mut two) = (Marks::default(), Marks::default());
        one.add(3);
        two.add(70);
        one.add_others(two);
        assert!(one.has(3) && one.has(70) && !one.has(4) && !one.has(1000));
        one.add_all();
        assert!(one.has(1000));
    }
}
