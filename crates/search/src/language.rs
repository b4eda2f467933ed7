//! Whether a model that was trained with English text can read a request.

/// A request with fewer plain words says too little, because they may be names; in one with few words, one that is known
/// is enough.
const MIN_WORDS: usize = 3;
const FEW_WORDS: usize = 4;

/// Whether at least half of the letters are Latin and, if there are enough words, about half of them are known.
/// What looks like the name of a thing, such as `getUser` or `v1.2`, counts for neither side.
pub(crate) fn is_readable(text: &str, is_known: impl Fn(&str) -> bool) -> bool {
    let letters = text.chars().filter(|letter| letter.is_alphabetic());
    let (all, latin) = letters.fold((0, 0), |(all, latin), letter| (all + 1, latin + usize::from(is_latin(letter))));
    if latin * 2 < all {
        return false;
    }
    let words = text.split_whitespace().map(|word| word.trim_matches(|letter: char| !letter.is_alphanumeric()));
    let words: Vec<String> = words.filter(|word| is_plain(word)).map(str::to_lowercase).collect();
    let known = words.iter().filter(|word| is_known(word)).count();
    match words.len() {
        ..MIN_WORDS => true,
        MIN_WORDS..=FEW_WORDS => known > 0,
        many => known * 2 >= many,
    }
}

fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.chars().all(char::is_alphabetic) && !word.chars().skip(1).any(char::is_uppercase)
}

fn is_latin(letter: char) -> bool {
    letter.is_ascii()
        || matches!(letter, '\u{aa}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}' | '\u{2c60}'..='\u{2c7f}'
            | '\u{a720}'..='\u{a7ff}' | '\u{fb00}'..='\u{fb06}' | '\u{ff21}'..='\u{ff5a}')
}

#[cfg(all(test, feature = "builtin-model"))]
mod tests {
    use crate::{BuiltIn, Embedder};

    fn is_read(text: &str) -> bool {
        BuiltIn.reads(text, &|_| false)
    }

    #[test]
    fn requests_in_other_languages_are_noticed() {
        for other in [
            "отправь письмо Анне",
            "创建一个新的问题",
            "GitHub で新しい課題を作成する",
            "أرسل رسالة إلى القناة",
            "käynnistä palvelin uudelleen",
            "wyszukaj wszystkie otwarte zgłoszenia",
            "sıradaki toplantıyı takvime ekle",
        ] {
            assert!(!is_read(other), "{other}");
        }
    }

    #[test]
    fn english_requests_and_names_are_read() {
        for english in [
            "",
            "42 + 1",
            "create a new issue in the project repository",
            "remember something",
            "kubectl rollout restart",
            "list k8s pods in kube-system",
            "getUserInfo createPullRequest listRepos",
            "send a message to Łukasz Żółć in Kraków about the café",
            "translate 天气 to English",
        ] {
            assert!(is_read(english), "{english}");
        }
    }

    #[test]
    fn words_of_tools_are_known() {
        assert!(!is_read("frobnicate blorgs wibblewise"));
        assert!(BuiltIn.reads("frobnicate blorgs wibblewise", &|word| ["frobnicate", "blorgs"].contains(&word)));
    }
}
