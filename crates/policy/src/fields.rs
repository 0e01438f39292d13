//! Field lines in their HTTP/1 form: one block of `Name: value\r\n`, in order, parsed in place.
//!
//! Keeping the block as one piece preserves order, case and repetition, makes sending a stored head a single copy, and
//! allocates nothing.

/// A view of field lines. Cheap to copy.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Fields<'a> {
    block: &'a [u8],
}

impl<'a> Fields<'a> {
    /// A view of `block`, which must consist of lines `Name:value\r\n` (white space around the value is allowed). It is
    /// for parsers that have validated each line; other code has a view of a [`FieldsBuf`] or of a
    /// [`FieldBlock`](crate::FieldBlock). A line without a colon is skipped.
    pub const fn new(block: &'a [u8]) -> Self {
        Self { block }
    }

    /// The lines, each with its `\r\n`.
    pub const fn as_block(self) -> &'a [u8] {
        self.block
    }

    /// The lines in order: name as written, value without surrounding white space.
    pub fn iter(self) -> Iter<'a> {
        Iter { rest: self.block }
    }

    /// The value of the first line called `name`, in any ASCII case.
    pub fn get(self, name: &str) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// The values of all lines called `name`, in order.
    pub fn all(self, name: &str) -> impl Iterator<Item = &'a [u8]> + use<'a, '_> {
        self.lines().filter_map(move |line| line.value_of(name))
    }

    /// The unparsed lines, for searches of a few names.
    pub(crate) fn lines(self) -> impl Iterator<Item = FieldLine<'a>> {
        let mut rest = self.block;
        std::iter::from_fn(move || next_line(&mut rest)).map(FieldLine)
    }

    /// Returns true if there is a line called `name`.
    pub fn contains(self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Appends the lines for which `keep(name, value)` returns true.
    pub fn write_if(self, out: &mut Vec<u8>, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        let mut rest = self.block;
        // Adjacent lines are copied together.
        let mut run = 0..0;
        while let Some(line) = next_line(&mut rest) {
            let end = self.block.len() - rest.len();
            if name_and_value(line).is_some_and(|(name, value)| keep(name, value)) {
                run.end = end;
            } else {
                out.extend_from_slice(&self.block[run]);
                run = end..end;
            }
        }
        out.extend_from_slice(&self.block[run]);
    }

    /// The members of a comma-separated list field over all its lines, trimmed, without empty ones. Commas inside
    /// quoted strings do not separate.
    pub fn members(self, name: &str) -> impl Iterator<Item = &'a [u8]> + use<'a, '_> {
        self.all(name).flat_map(split_list)
    }
}

impl std::fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map()
            .entries(
                self.iter()
                    .map(|(n, v)| (n.escape_ascii().to_string(), v.escape_ascii().to_string())),
            )
            .finish()
    }
}

impl<'a> IntoIterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);
    type IntoIter = Iter<'a>;
    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// An unparsed line of a [`Fields`].
#[derive(Clone, Copy)]
pub(crate) struct FieldLine<'a>(&'a [u8]);

impl<'a> FieldLine<'a> {
    /// The first byte; letters are in lower case.
    pub(crate) fn initial(self) -> u8 {
        self.0.first().map_or(0, u8::to_ascii_lowercase)
    }

    /// The first four bytes in lower case ([`beginning`]). Every known name has at least four.
    pub(crate) fn beginning(self) -> u32 {
        self.0.first_chunk().map_or(0, |four| beginning(*four))
    }

    /// Returns true if the byte at this index is `byte`.
    pub(crate) fn has_at(self, at: usize, byte: u8) -> bool {
        self.0.get(at) == Some(&byte)
    }

    /// The length in bytes, with the line end.
    pub(crate) const fn len(self) -> usize {
        self.0.len()
    }

    /// The name.
    pub(crate) fn name(self) -> &'a [u8] {
        name_and_value(self.0).map_or(b"", |(name, _)| name)
    }

    /// The value, if the line is called `name`. Other lines are rejected without a search for the colon.
    pub(crate) fn value_of(self, name: &str) -> Option<&'a [u8]> {
        let (found, value) = self.0.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        found
            .eq_ignore_ascii_case(name.as_bytes())
            .then(|| value.trim_ascii())
    }
}

/// Four letters, in any case, as one number: the cheapest test that excludes most names.
pub(crate) const fn beginning(letters: [u8; 4]) -> u32 {
    u32::from_le_bytes(letters) | 0x2020_2020
}

/// An iterator over the lines of a [`Fields`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(parts) = name_and_value(next_line(&mut self.rest)?) {
                return Some(parts);
            }
        }
    }
}

/// Takes the first line, with its line end.
fn next_line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    if rest.is_empty() {
        return None;
    }
    let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |i| i + 1);
    rest.split_off(..end)
}

fn name_and_value(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|&b| b == b':')?;
    Some((&line[..colon], line[colon + 1..].trim_ascii()))
}

/// Returns true if `name` is in `names`, in any ASCII case.
pub fn is_one_of(name: &[u8], names: &[&str]) -> bool {
    names
        .iter()
        .any(|one| name.eq_ignore_ascii_case(one.as_bytes()))
}

/// Splits a field value at its commas, except in quoted strings.
pub fn split_list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(value);
    std::iter::from_fn(move || {
        let all = rest?;
        let mut quoted = false;
        let mut escaped = false;
        let end = all.iter().position(|&b| match b {
            _ if escaped => {
                escaped = false;
                false
            }
            b'\\' if quoted => {
                escaped = true;
                false
            }
            b'"' => {
                quoted = !quoted;
                false
            }
            b',' => !quoted,
            _ => false,
        });
        match end {
            Some(end) => {
                rest = Some(&all[end + 1..]);
                Some(&all[..end])
            }
            None => rest.take(),
        }
    })
    .map(<[u8]>::trim_ascii)
    .filter(|member| !member.is_empty())
}

/// A block of field lines under construction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldsBuf {
    block: Vec<u8>,
}

impl FieldsBuf {
    /// An empty block.
    pub const fn new() -> Self {
        Self { block: Vec::new() }
    }

    /// An empty block with capacity for this many bytes.
    pub fn with_capacity(block: usize) -> Self {
        // Some room for the space after each colon, and for lines of ours.
        Self {
            block: Vec::with_capacity(block + 256),
        }
    }

    /// The bytes of the block.
    pub fn into_block(self) -> Vec<u8> {
        self.block
    }

    /// A view of the lines.
    pub fn fields(&self) -> Fields<'_> {
        Fields::new(&self.block)
    }

    /// Appends a line. Control bytes are replaced by spaces, so that a value cannot end the line.
    pub fn push(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.block.extend_from_slice(name.as_ref());
        self.block.extend_from_slice(b": ");
        let start = self.block.len();
        self.block.extend_from_slice(value.as_ref());
        for byte in &mut self.block[start..] {
            if matches!(byte, b'\r' | b'\n' | 0) {
                *byte = b' ';
            }
        }
        self.block.extend_from_slice(b"\r\n");
    }

    /// Appends the lines for which `keep(name, value)` returns true.
    pub fn extend_if(&mut self, fields: Fields<'_>, keep: impl FnMut(&[u8], &[u8]) -> bool) {
        fields.write_if(&mut self.block, keep);
    }

    /// Removes every line called `name`, keeping the order of the others.
    pub fn remove(&mut self, name: &str) {
        if self.fields().contains(name) {
            self.retain(|n, _| !n.eq_ignore_ascii_case(name.as_bytes()));
        }
    }

    /// Replaces all lines called `name` by one at the end.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.remove(name);
        self.push(name, value);
    }

    /// Keeps the lines for which `keep(name, value)` returns true.
    pub fn retain(&mut self, keep: impl FnMut(&[u8], &[u8]) -> bool) {
        let mut kept = Self::with_capacity(self.block.len());
        kept.extend_if(self.fields(), keep);
        *self = kept;
    }
}

impl<'a> FromIterator<(&'a [u8], &'a [u8])> for FieldsBuf {
    fn from_iter<T: IntoIterator<Item = (&'a [u8], &'a [u8])>>(iter: T) -> Self {
        let mut all = Self::new();
        for (name, value) in iter {
            all.push(name, value);
        }
        all
    }
}

impl<'a> From<Fields<'a>> for FieldsBuf {
    fn from(fields: Fields<'a>) -> Self {
        Self {
            block: fields.as_block().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_order_case_and_repetition() {
        let block = b"Host: a\r\nX-One:  1 \r\nx-one:2\r\nEmpty:\r\n";
        let fields = Fields::new(block);
        let all: Vec<_> = fields.iter().collect();
        assert_eq!(
            all,
            [
                (&b"Host"[..], &b"a"[..]),
                (b"X-One", b"1"),
                (b"x-one", b"2"),
                (b"Empty", b""),
            ]
        );
        assert_eq!(fields.all("X-ONE").count(), 2);
        assert_eq!(fields.get("empty"), Some(&b""[..]));
        assert_eq!(fields.get("none"), None);
    }

    #[test]
    fn lists_split_over_lines_and_not_inside_quotes() {
        let fields = Fields::new(b"A: x, \"y, \\\" z\",, \r\nA: w\r\n");
        let all: Vec<_> = fields.members("a").collect();
        assert_eq!(all, [&b"x"[..], b"\"y, \\\" z\"", b"w"]);
    }

    #[test]
    fn lines_are_kept_as_they_stand() {
        let fields = Fields::new(b"A:1\r\nB: 2\r\nno line\r\nC:  3 \r\na: 4\r\nD: 5\r\n");
        for (dropped, left) in [
            ("", "A:1\r\nB: 2\r\nC:  3 \r\na: 4\r\nD: 5\r\n"),
            ("a", "B: 2\r\nC:  3 \r\nD: 5\r\n"),
            ("b", "A:1\r\nC:  3 \r\na: 4\r\nD: 5\r\n"),
            ("d", "A:1\r\nB: 2\r\nC:  3 \r\na: 4\r\n"),
        ] {
            let mut kept = FieldsBuf::new();
            kept.extend_if(fields, |name, _| {
                !name.eq_ignore_ascii_case(dropped.as_bytes())
            });
            assert_eq!(kept.into_block(), left.as_bytes(), "without {dropped:?}");
        }
    }

    #[test]
    fn a_line_cannot_be_smuggled_in() {
        let mut fields = FieldsBuf::new();
        fields.push("A", "1\r\nB: 2");
        assert_eq!(fields.fields().iter().count(), 1);
        assert_eq!(fields.fields().get("a"), Some(&b"1  B: 2"[..]));
    }

    #[test]
    fn set_and_remove_leave_other_fields_alone() {
        let mut fields = FieldsBuf::from(Fields::new(b"A: 1\r\nB: 2\r\na: 3\r\nC: 4\r\n"));
        fields.set("A", "9");
        assert_eq!(fields.fields().as_block(), b"B: 2\r\nC: 4\r\nA: 9\r\n");
        fields.remove("b");
        assert_eq!(fields.fields().as_block(), b"C: 4\r\nA: 9\r\n");
    }
}
