//! Stop words: frequent words, and words of polite requests.

/// Sorted, for binary search.
#[rustfmt::skip]
const STOP_WORDS: &[&str] = &[
    "a", "about", "above", "after", "again", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be",
    "because", "been", "before", "being", "below", "between", "both", "but", "by", "can", "could", "d", "did", "didn",
    "do", "does", "doesn", "doing", "don", "down", "during", "each", "few", "for", "from", "further", "give", "had",
    "has", "have", "having", "he", "hello", "help", "her", "here", "hers", "hey", "hi", "him", "his", "how", "i",
    "if", "in", "into", "is", "isn", "it", "its", "itself", "just", "kindly", "let", "like", "ll", "m", "may", "me",
    "might", "more", "most", "must", "my", "myself", "need", "no", "nor", "not", "now", "of", "off", "on", "once",
    "only", "or", "other", "our", "ours", "out", "over", "own", "please", "re", "same", "shall", "she", "should",
    "so", "some", "such", "tell", "than", "thank", "thanks", "that", "the", "their", "theirs", "them", "then",
    "there", "these", "they", "this", "those", "through", "to", "too", "under", "until", "up", "ve", "very", "want",
    "was", "we", "were", "what", "when", "where", "which", "while", "who", "whom", "why", "will", "with", "would",
    "you", "your", "yours", "yourself",
];

pub(super) fn is_one(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn they_are_in_order() {
        assert!(super::STOP_WORDS.is_sorted());
    }
}
