//! Tables of texts that are known when the program is compiled. A text is found in a few instructions: by one
//! multiplication, and by words instead of bytes.

/// A table of `N` different texts of 2 to 40 bytes, at most 256 of them.
pub(crate) struct TextTable<const N: usize> {
    forms: [Form; N],
    /// Places of the texts by their hashes. An empty slot has the place of the first text.
    places: [u8; SLOTS],
    /// A multiplier by which no two texts have the same hash.
    multiplier: u64,
}

/// Slots of the hash table: many, so that a multiplier without collisions is soon found.
const SLOTS: usize = 2048;

/// The distinction between the cases of letters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    /// Texts in lower case, which are found in any ASCII case.
    Any,
    /// Texts that are found as they are written.
    Exact,
}

impl<const N: usize> TextTable<N> {
    /// The table of these texts. For constants: fails to compile for other texts.
    pub(crate) const fn new(texts: &[&str], case: Case) -> Self {
        let forms = forms(texts, case);
        let mut multiplier = 0x9e37_79b9_7f4a_7c15_u64;
        while collides(&forms, multiplier) {
            multiplier = multiplier.wrapping_mul(6_364_136_223_846_793_005) | 1;
            multiplier = multiplier.wrapping_add(0x632b_e59b_d9b4_e3a4);
        }
        let mut places = [0; SLOTS];
        let mut place = 0;
        while place < N {
            places[forms[place].text.hash(multiplier)] = place as u8;
            place += 1;
        }
        Self {
            forms,
            places,
            multiplier,
        }
    }

    /// The place of a text in the table.
    #[inline]
    pub(crate) fn find(&self, text: &[u8]) -> Option<u8> {
        let words = Words::of(text)?;
        let place = self.places[words.hash(self.multiplier)];
        let form = self.forms.get(usize::from(place))?;
        form.has(&words).then_some(place)
    }
}

const fn forms<const N: usize>(texts: &[&str], case: Case) -> [Form; N] {
    assert!(texts.len() == N && N <= 256, "the number of texts");
    let mut forms = [Form::EMPTY; N];
    let mut place = 0;
    while place < N {
        forms[place] = Form::of(texts[place], case);
        place += 1;
    }
    forms
}

const fn collides(forms: &[Form], multiplier: u64) -> bool {
    let mut taken = [false; SLOTS];
    let mut place = 0;
    while place < forms.len() {
        let slot = forms[place].text.hash(multiplier);
        if taken[slot] {
            return true;
        }
        taken[slot] = true;
        place += 1;
    }
    false
}

/// The forms of a text in all cases.
#[derive(Clone, Copy)]
struct Form {
    text: Words,
    /// The bits that tell the cases of its letters apart, or none.
    case: Words,
}

impl Form {
    const EMPTY: Self = Self {
        text: Words::EMPTY,
        case: Words::EMPTY,
    };

    const fn of(text: &str, case: Case) -> Self {
        let text = text.as_bytes();
        let mut bits = [0; 40];
        let mut at = 0;
        while at < text.len() && matches!(case, Case::Any) {
            assert!(!text[at].is_ascii_uppercase(), "a text is in lower case");
            if text[at].is_ascii_lowercase() {
                bits[at] = 0x20;
            }
            at += 1;
        }
        let (bits, _) = bits.split_at(text.len());
        match (Words::of(text), Words::of(bits)) {
            (Some(text), Some(case)) => Self { text, case },
            _ => panic!("a text has 2 to 40 bytes"),
        }
    }

    #[inline]
    const fn has(&self, words: &Words) -> bool {
        let (text, case) = (&self.text, &self.case);
        words.length == text.length
            && words.ends[0] | case.ends[0] == text.ends[0]
            && words.ends[1] | case.ends[1] == text.ends[1]
            && (words.length <= 16
                || words.middle[0] | case.middle[0] == text.middle[0]
                    && words.middle[1] | case.middle[1] == text.middle[1]
                    && words.middle[2] | case.middle[2] == text.middle[2])
    }
}

/// The length of a text and all its bytes, as words that overlap.
#[derive(Clone, Copy)]
struct Words {
    length: usize,
    /// The first and the last bytes.
    ends: [u64; 2],
    /// The bytes next to them in a text longer than 16, and those between in one longer than 32.
    middle: [u64; 3],
}

impl Words {
    const EMPTY: Self = Self {
        length: 0,
        ends: [0; 2],
        middle: [0; 3],
    };

    #[inline]
    const fn of(text: &[u8]) -> Option<Self> {
        let middle = match text.len() {
            0..=16 => [0; 3],
            17..=32 => [word(text, 8), word(text, text.len() - 16), 0],
            33..=40 => [word(text, 8), word(text, text.len() - 16), word(text, 16)],
            _ => return None,
        };
        let ends = if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk()) {
            [u64::from_le_bytes(*first), u64::from_le_bytes(*last)]
        } else if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk()) {
            let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
            [first as u64, last as u64]
        } else if let (Some(first), Some(last)) = (text.first_chunk::<2>(), text.last_chunk()) {
            let (first, last) = (u16::from_le_bytes(*first), u16::from_le_bytes(*last));
            [first as u64, last as u64]
        } else {
            return None;
        };
        Some(Self {
            length: text.len(),
            ends,
            middle,
        })
    }

    /// A hash of the length and the ends, the same in any case.
    #[inline]
    const fn hash(&self, multiplier: u64) -> usize {
        const CASE: u64 = 0x2020_2020_2020_2020;
        // Whole bytes are rotated: the bits of the case stay in their places.
        let ends = self.ends[0] ^ self.ends[1].rotate_left(24) | CASE;
        let mixed = ends ^ self.length as u64;
        (mixed.wrapping_mul(multiplier) >> (64 - SLOTS.ilog2())) as usize
    }
}

/// Eight bytes of a text.
#[inline]
const fn word(text: &[u8], at: usize) -> u64 {
    let (_, rest) = text.split_at(at);
    match rest.first_chunk() {
        Some(eight) => u64::from_le_bytes(*eight),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [&str; 10] = [
        "te",
        "age",
        "host",
        "-a.b_c",
        "cookie2",
        "if-match",
        "if-none-match",
        "sixteen-letters-",
        "access-control-request-headers-3",
        "a-text-that-has-almost-forty-letters-in-",
    ];

    fn check(text: &[u8]) {
        const ANY: TextTable<10> = TextTable::new(&TEXTS, Case::Any);
        const EXACT: TextTable<10> = TextTable::new(&TEXTS, Case::Exact);
        let shown = text.escape_ascii();
        let exact = TEXTS.iter().position(|one| one.as_bytes() == text);
        assert_eq!(EXACT.find(text).map(usize::from), exact, "{shown}");
        let lower = text.to_ascii_lowercase();
        let any = TEXTS.iter().position(|one| one.as_bytes() == lower);
        assert_eq!(ANY.find(text).map(usize::from), any, "{shown}");
    }

    #[test]
    fn a_text_is_found_and_no_other_is() {
        for text in TEXTS {
            check(text.as_bytes());
            check(text.to_ascii_uppercase().as_bytes());
            for at in 0..text.len() {
                check(&text.as_bytes()[at..]);
                check(&text.as_bytes()[..at]);
                check(format!("{text}{}", &text[at..]).as_bytes());
                for byte in 0..=u8::MAX {
                    let mut other = text.as_bytes().to_vec();
                    other[at] = byte;
                    check(&other);
                }
            }
        }
    }
}
