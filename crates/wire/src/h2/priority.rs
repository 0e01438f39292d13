//! Priorities of responses (RFC 9218 §4).

/// Parameters of the field `priority`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// Urgency from 0 (highest) to 7 (background).
    pub urgency: u8,
    /// Incremental: useful in parts, so responses of the same urgency may be interleaved.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self {
            urgency: 3,
            incremental: false,
        }
    }
}

impl Priority {
    /// Parses a field value. Invalid parameters keep their defaults (RFC 9218 §4).
    pub fn of(value: &[u8]) -> Self {
        let mut priority = Self::default();
        for member in value.split(|&byte| byte == b',') {
            match member.trim_ascii() {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_read() {
        for (value, urgency, incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i,u=1", 1, true),
            ("i=?0", 3, false),
            ("u=8", 3, false),
            ("u=-1, x=y", 3, false),
            ("U=1", 3, false),
        ] {
            let expected = Priority {
                urgency,
                incremental,
            };
            assert_eq!(Priority::of(value.as_bytes()), expected, "{value}");
        }
    }
}
