//! Field lines in their HTTP/1 form: one block of `Name: value\r\n`, in order, parsed in place.
//!
//! Keeping the block as one piece preserves order, case and repetition, makes sending a stored head a single copy, and
//! allocates nothing. A parsed head has an index beside its block; other blocks are searched for each question.

use crate::field_index::{FieldIndex, IndexedLine};
use crate::field_name::FieldName;
use crate::known_name::{KnownName, LineStart};
use crate::name_set::NameSet;

/// A view of field lines. Cheap to copy.
#[derive(Clone, Copy, Default)]
pub struct Fields<'a> {
    block: &'a [u8],
    index: Option<&'a FieldIndex>,
}

impl<'a> Fields<'a> {
    /// A view of `block`, which must consist of lines `Name:value\r\n` (white space around the value is allowed). It is
    /// for parsers that have validated each line; other code has a view of a [`FieldsBuf`] or of a
    /// [`FieldBlock`](crate::FieldBlock). A line without a colon is skipped.
    pub const fn new(block: &'a [u8]) -> Self {
        Self { block, index: None }
    }

    /// As [`Self::new`], with the index of the same lines.
    pub const fn indexed(block: &'a [u8], index: &'a FieldIndex) -> Self {
        Self {
            block,
            index: Some(index),
        }
    }

    /// The lines, each with its `\r\n`.
    pub const fn as_block(self) -> &'a [u8] {
        self.block
    }

    /// The lines in order: name as written, value without surrounding white space.
    pub fn iter(self) -> Iter<'a> {
        Iter {
            lines: self.lines(),
        }
    }

    /// The value of the first line called `name`, in any ASCII case.
    pub fn get(self, name: &str) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// The values of all lines called `name`, in order.
    pub fn all(self, name: &str) -> impl Iterator<Item = &'a [u8]> + use<'a, '_> {
        let is_absent = |index: &FieldIndex| {
            KnownName::of(name.as_bytes()).is_some_and(|known| !index.names().contains(known))
        };
        let searched = match self.index {
            Some(index) if is_absent(index) => Self::default(),
            _ => self,
        };
        searched
            .bare_lines()
            .filter_map(move |line| match line.index {
                Some(index) if index.name_len() != name.len() => None,
                _ => value_of(line.bytes, name),
            })
    }

    /// The value of the first line with this name.
    #[inline]
    pub fn value(self, name: KnownName) -> Option<&'a [u8]> {
        self.values(name).next()
    }

    /// The values of all lines with this name, in order. Nothing is searched if an index has no such name.
    #[inline]
    pub fn values(self, name: KnownName) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let searched = if self.may_have(NameSet::of(&[name])) {
            self
        } else {
            Self::default()
        };
        searched
            .bare_lines()
            .filter_map(move |line| match line.index {
                Some(index) if index.known() == Some(name) => {
                    line.bytes.get(index.name_len() + 1..).map(trimmed)
                }
                Some(_) => None,
                None => value_of(line.bytes, name.as_str()),
            })
    }

    /// Returns false if no line has one of these names. Without an index it returns true.
    #[inline]
    pub fn may_have(self, names: NameSet) -> bool {
        self.index.is_none_or(|index| index.names().meets(names))
    }

    /// The lines in order.
    #[inline]
    pub fn lines(self) -> Lines<'a> {
        Lines(self.bare_lines())
    }

    /// Visits the lines with one of these names and those with an unknown name, in order. It does not look at the others.
    #[expect(
        clippy::inline_always,
        reason = "a hit pays for the call, which others make only now and then"
    )]
    #[inline(always)]
    pub(crate) fn visit(self, names: NameSet, visit: impl FnMut(Option<KnownName>, FieldLine<'_>)) {
        let names = names.with_unknown();
        match self.index {
            Some(index) if !index.names().meets(names) => {}
            Some(index) => visit_lines(self.block, index, names, visit),
            None => {
                let copy = self.to_indexed();
                let index = copy.index.unwrap_or_default();
                visit_lines(&copy.block, &index, names, visit);
            }
        }
    }

    /// A copy of the lines, with an index.
    #[cold]
    fn to_indexed(self) -> FieldsBuf {
        let mut copy = FieldsBuf::indexed(self.block.len());
        copy.extend_lines(self, |_| true);
        copy
    }

    #[inline]
    fn bare_lines(self) -> BareLines<'a> {
        BareLines {
            rest: self.block,
            index: self.index.map(|index| index.lines().iter()),
        }
    }

    /// A copy of the index, or the index of lines that have none.
    pub fn to_index(self) -> FieldIndex {
        if let Some(index) = self.index {
            return index.clone();
        }
        let mut index = FieldIndex::default();
        for line in self.lines() {
            let name = line.field_name();
            index.push(name.text().len(), name.known(), line.len());
        }
        index
    }

    /// Returns true if there is a line called `name`.
    pub fn contains(self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Appends the lines for which `keep(line)` returns true.
    pub fn write_lines(self, out: &mut Vec<u8>, mut keep: impl FnMut(FieldLine<'a>) -> bool) {
        // Adjacent lines are copied together.
        let mut run = 0..0;
        let mut lines = self.lines();
        while let Some(line) = lines.next() {
            let end = self.block.len() - lines.0.rest.len();
            if keep(line) {
                let start = end - line.len();
                if start != run.end {
                    out.extend_from_slice(&self.block[run]);
                    run = start..start;
                }
                run.end = end;
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

fn visit_lines<'a>(
    block: &'a [u8],
    index: &FieldIndex,
    names: NameSet,
    mut visit: impl FnMut(Option<KnownName>, FieldLine<'a>),
) {
    let mut end = 0;
    for line in index.lines() {
        let start = end;
        end += line.len();
        if !names.has_number(line.number()) {
            continue;
        }
        let Some(bytes) = block.get(start..end) else {
            return;
        };
        let found = FieldLine {
            bytes,
            name_length: line.name_len(),
            index: Some(*line),
        };
        visit(line.known(), found);
    }
}

/// Equal lines, with an index or without.
impl PartialEq for Fields<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.block == other.block
    }
}

impl Eq for Fields<'_> {}

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

/// One line of a [`Fields`].
#[derive(Clone, Copy, Debug)]
pub struct FieldLine<'a> {
    bytes: &'a [u8],
    /// The place of the colon.
    name_length: usize,
    index: Option<IndexedLine>,
}

impl<'a> FieldLine<'a> {
    /// The length in bytes, with the line end.
    pub(crate) const fn len(self) -> usize {
        self.bytes.len()
    }

    /// The name, if it is known.
    #[inline]
    pub fn known(self) -> Option<KnownName> {
        match self.index {
            Some(index) => index.known(),
            None => KnownName::of(self.name()),
        }
    }

    /// The name as written.
    #[inline]
    pub fn name(self) -> &'a [u8] {
        self.bytes.get(..self.name_length).unwrap_or_default()
    }

    /// The name, with its number if it is known.
    #[inline]
    pub fn field_name(self) -> FieldName<'a> {
        FieldName::indexed(self.name(), self.known())
    }

    /// The value without surrounding white space.
    #[inline]
    pub fn value(self) -> &'a [u8] {
        trimmed(self.bytes.get(self.name_length + 1..).unwrap_or_default())
    }

    /// The value, if the line is called `name`.
    #[inline]
    pub(crate) fn value_of(self, name: &str) -> Option<&'a [u8]> {
        let is_called_so =
            self.name_length == name.len() && self.name().eq_ignore_ascii_case(name.as_bytes());
        is_called_so.then(|| self.value())
    }
}

/// The value of a line without an index, if it is called `name`. Others are rejected without a search for the colon.
fn value_of<'a>(line: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let (found, value) = line.split_at_checked(name.len())?;
    let value = value.strip_prefix(b":")?;
    let is_called_so = found.eq_ignore_ascii_case(name.as_bytes());
    is_called_so.then(|| trimmed(value))
}

/// A value without its surrounding white space and line end. Nearly all have one space before it.
#[inline]
fn trimmed(value: &[u8]) -> &[u8] {
    match value {
        [b' ', inner @ .., b'\r', b'\n']
            if inner.first().is_some_and(|&byte| byte > b' ')
                && inner.last().is_some_and(|&byte| byte > b' ') =>
        {
            inner
        }
        _ => value.trim_ascii(),
    }
}

/// A line, and its index if there is one.
#[derive(Clone, Copy)]
struct BareLine<'a> {
    bytes: &'a [u8],
    index: Option<IndexedLine>,
}

#[derive(Clone, Debug)]
struct BareLines<'a> {
    rest: &'a [u8],
    index: Option<std::slice::Iter<'a, IndexedLine>>,
}

impl<'a> Iterator for BareLines<'a> {
    type Item = BareLine<'a>;

    #[inline]
    fn next(&mut self) -> Option<BareLine<'a>> {
        let index = match &mut self.index {
            Some(lines) => Some(*lines.next()?),
            None if self.rest.is_empty() => return None,
            None => None,
        };
        let length = match index {
            Some(index) => index.len(),
            None => memchr::memchr(b'\n', self.rest).map_or(self.rest.len(), |at| at + 1),
        };
        let bytes = self.rest.split_off(..length)?;
        Some(BareLine { bytes, index })
    }
}

/// An iterator over the lines of a [`Fields`].
#[derive(Clone, Debug)]
pub struct Lines<'a>(BareLines<'a>);

impl<'a> Iterator for Lines<'a> {
    type Item = FieldLine<'a>;

    #[inline]
    fn next(&mut self) -> Option<FieldLine<'a>> {
        loop {
            let BareLine { bytes, index } = self.0.next()?;
            let name_length = match index {
                Some(index) => Some(index.name_len()),
                None => bytes.iter().position(|&byte| byte == b':'),
            };
            if let Some(name_length) = name_length {
                return Some(FieldLine {
                    bytes,
                    name_length,
                    index,
                });
            }
        }
    }
}

/// An iterator over names and values of the lines of a [`Fields`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    lines: Lines<'a>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.lines.next()?;
        Some((line.name(), line.value()))
    }
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
#[derive(Clone, Debug, Default)]
pub struct FieldsBuf {
    block: Vec<u8>,
    /// The index, if the lines will be searched.
    index: Option<Box<FieldIndex>>,
}

impl FieldsBuf {
    /// An empty block.
    pub const fn new() -> Self {
        Self {
            block: Vec::new(),
            index: None,
        }
    }

    /// An empty block with capacity for this many bytes.
    pub fn with_capacity(block: usize) -> Self {
        Self {
            // Some room for the space after each colon, and for lines of ours.
            block: Vec::with_capacity(block + 256),
            index: None,
        }
    }

    /// An empty block with capacity for this many bytes, and with an index of its lines.
    pub fn indexed(block: usize) -> Self {
        Self {
            index: Some(Box::default()),
            ..Self::with_capacity(block)
        }
    }

    /// The bytes of the block.
    pub fn into_block(self) -> Vec<u8> {
        self.block
    }

    /// A view of the lines.
    pub fn fields(&self) -> Fields<'_> {
        Fields {
            block: &self.block,
            index: self.index.as_deref(),
        }
    }

    /// Appends a line. Control bytes are replaced by spaces, so that a value cannot end the line.
    pub fn push(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.push_joined(name.as_ref(), &[value.as_ref()]);
    }

    /// As [`Self::push`], with a value in pieces.
    pub fn push_joined(&mut self, name: &[u8], value: &[&[u8]]) {
        let known = self.index.as_ref().and_then(|_| KnownName::of(name));
        self.push_pieces(&[name, b": "], value, name.len(), known);
    }

    /// As [`Self::push_joined`], with a known name: several times as fast.
    #[inline]
    pub fn push_line<const N: usize>(&mut self, start: LineStart, value: [&[u8]; N]) {
        let (name_length, known) = (start.name().len(), Some(start.known()));
        self.push_pieces(&[start.text().as_bytes()], &value, name_length, known);
    }

    /// Appends a line whose start and value are in pieces, and adds it to the index.
    #[expect(
        clippy::inline_always,
        reason = "callers know the number of pieces; a miss writes seven lines"
    )]
    #[inline(always)]
    fn push_pieces(
        &mut self,
        start: &[&[u8]],
        value: &[&[u8]],
        name_length: usize,
        known: Option<KnownName>,
    ) {
        let line = self.block.len();
        let length: usize = start.iter().chain(value).map(|piece| piece.len()).sum();
        self.block.reserve(length + b"\r\n".len());
        for piece in start {
            self.block.extend_from_slice(piece);
        }
        let value_at = self.block.len();
        for piece in value {
            self.block.extend_from_slice(piece);
        }
        without_line_ends(&mut self.block[value_at..]);
        self.block.extend_from_slice(b"\r\n");
        if let Some(index) = &mut self.index {
            index.push(name_length, known, self.block.len() - line);
        }
    }

    /// Appends the lines for which `keep(name, value)` returns true.
    pub fn extend_if(&mut self, fields: Fields<'_>, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        self.extend_lines(fields, |line| keep(line.name(), line.value()));
    }

    /// Appends the lines for which `keep(line)` returns true.
    pub fn extend_lines<'a>(
        &mut self,
        fields: Fields<'a>,
        mut keep: impl FnMut(FieldLine<'a>) -> bool,
    ) {
        let mut index = self.index.as_deref_mut();
        fields.write_lines(&mut self.block, |line| {
            let is_kept = keep(line);
            if is_kept && let Some(index) = &mut index {
                index.push(line.name_length, line.known(), line.len());
            }
            is_kept
        });
    }

    /// Removes every line called `name`, keeping the order of the others.
    pub fn remove(&mut self, name: &str) {
        if !self.fields().contains(name) {
            return;
        }
        match (&mut self.index, KnownName::of(name.as_bytes())) {
            (Some(index), Some(known)) => index.remove(known, &mut self.block),
            _ => self.retain(|n, _| !n.eq_ignore_ascii_case(name.as_bytes())),
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
        kept.index = self.index.as_ref().map(|_| Box::default());
        kept.extend_if(self.fields(), keep);
        *self = kept;
    }
}

/// Replaces the bytes that end a line, or a text in C, by spaces.
fn without_line_ends(value: &mut [u8]) {
    if !has_low_byte(value) {
        return;
    }
    for byte in value {
        if matches!(byte, b'\r' | b'\n' | 0) {
            *byte = b' ';
        }
    }
}

/// Returns true if a byte is less than 16, as hardly any value has. Eight bytes are compared at once.
fn has_low_byte(value: &[u8]) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let has_low = |block: &[u8; 8]| {
        let word = u64::from_ne_bytes(*block);
        word.wrapping_sub(16 * ONES) & !word & (128 * ONES) != 0
    };
    let (blocks, rest) = value.as_chunks();
    blocks.iter().any(has_low)
        || match value.last_chunk() {
            Some(last) => has_low(last),
            None => rest.iter().any(|&byte| byte < 16),
        }
}

/// Equal lines, with an index or without.
impl PartialEq for FieldsBuf {
    fn eq(&self, other: &Self) -> bool {
        self.block == other.block
    }
}

impl Eq for FieldsBuf {}

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
            index: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_name::names;

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
    fn a_value_of_any_length_cannot_end_its_line() {
        for length in 0..40 {
            for at in 0..length {
                for byte in [b'\r', b'\n', 0] {
                    let mut value = vec![b'v'; length];
                    value[at] = byte;
                    let mut fields = FieldsBuf::new();
                    fields.push("A", &value);
                    value[at] = b' ';
                    let line = [&b"A: "[..], &value, b"\r\n"].concat();
                    assert_eq!(fields.into_block(), line);
                }
            }
        }
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
    fn an_index_changes_no_answer() {
        let block = b"Host: a\r\nX-One:  1 \r\nCOOKIE:a=b\r\nx-one:2\r\ncookie:\t\r\nLong: a b\r\n";
        let plain = Fields::new(block);
        let index = plain.to_index();
        let indexed = Fields::indexed(block, &index);
        assert!(plain.iter().eq(indexed.iter()));
        assert!(
            plain
                .lines()
                .map(FieldLine::known)
                .eq(indexed.lines().map(FieldLine::known))
        );
        for name in ["host", "X-One", "Cookie", "x-tw", "range", "long", ""] {
            assert!(plain.all(name).eq(indexed.all(name)), "{name}");
            let mut kept = [FieldsBuf::new(), FieldsBuf::new()];
            for (kept, fields) in kept.iter_mut().zip([plain, indexed]) {
                kept.extend_lines(fields, |line| line.value_of(name).is_none());
            }
            assert_eq!(kept[0], kept[1], "{name}");
        }
        for name in KnownName::all() {
            assert!(plain.values(name).eq(indexed.values(name)), "{name:?}");
            let visited = [plain, indexed].map(|fields| {
                let mut lines = Vec::new();
                fields.visit(NameSet::of(&[name]), |known, line| {
                    lines.push((known, line.name().to_vec(), line.value().to_vec()));
                });
                lines
            });
            assert_eq!(visited[0], visited[1], "{name:?}");
            let is_meant = |line: &FieldLine<'_>| line.known().is_none_or(|known| known == name);
            let expected: Vec<_> = plain.lines().filter(is_meant).collect();
            let expected = expected
                .iter()
                .map(|line| (line.known(), line.name().to_vec(), line.value().to_vec()));
            assert!(expected.eq(visited[0].iter().cloned()), "{name:?}");
            assert_eq!(
                indexed.may_have(NameSet::of(&[name])),
                plain.value(name).is_some()
            );
        }
    }

    #[test]
    fn the_index_of_a_block_under_construction_follows_it() {
        let lines = b"Host: a\r\nX: 1\r\ncookie:2\r\nhost:b\r\n";
        let (mut plain, mut indexed) = (FieldsBuf::new(), FieldsBuf::indexed(0));
        for fields in [&mut plain, &mut indexed] {
            fields.extend_if(Fields::new(lines), |name, _| name != b"X");
            fields.push("Via", "1.1 a\r\n");
            fields.push_joined(b"Cookie", &[b"a", b"b"]);
            fields.set("HOST", "c");
            fields.retain(|_, value| value != b"2");
        }
        assert_eq!(plain, indexed);
        let found = indexed.fields();
        assert!(found.index.is_some());
        assert!(found.iter().eq(plain.fields().iter()));
        for name in KnownName::all() {
            assert!(found.values(name).eq(plain.fields().values(name)));
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

    #[test]
    fn lines_are_removed_from_an_index_too() {
        const TEXT: &[u8] = b"Age: 1\r\nVia: a\r\nX-Other: b\r\nage: 2\r\nAGE: 3\r\nDate: c\r\n";
        for name in ["age", "via", "date", "x-other", "etag"] {
            let mut plain = FieldsBuf::from(Fields::new(TEXT));
            let mut indexed = FieldsBuf::indexed(TEXT.len());
            indexed.extend_lines(plain.fields(), |_| true);
            plain.remove(name);
            indexed.remove(name);
            assert_eq!(plain, indexed);
            assert!(!indexed.fields().contains(name), "{name}");
            let lines = |fields: &FieldsBuf| fields.fields().lines().count();
            assert_eq!(lines(&plain), lines(&indexed));
            for known in KnownName::all() {
                let values = |fields: Fields<'_>| fields.values(known).count();
                assert_eq!(values(indexed.fields()), values(plain.fields()));
            }
        }
    }

    #[test]
    fn a_line_with_a_known_name_is_as_any_other() {
        const AGE: LineStart = LineStart::of("Age: ");
        let (mut known, mut any) = (FieldsBuf::indexed(64), FieldsBuf::indexed(64));
        for fields in [&mut known, &mut any] {
            fields.push("Via", "a");
        }
        known.push_line(AGE, [b"1\n", b"", b"2"]);
        any.push_joined(b"Age", &[b"1\n", b"", b"2"]);
        assert_eq!(known, any);
        assert_eq!(known.fields().value(names::AGE), Some(&b"1 2"[..]));
        assert_eq!(AGE.name(), "Age");
    }
}
