//! Divides a page into text, markup that is left out, and includes.

use memchr::{memchr, memchr2, memmem};

use super::include::Include;
use super::server_side::{self, SsiDirective, block};
use super::tag::{EsiTag, length};

/// The longest tag, and the longest block of SSI. One that does not end within it is left out.
pub const LONGEST_TAG: usize = 8192;

/// Blocks of SSI that a page may define.
const MOST_BLOCKS: usize = 16;

/// The next part of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Bytes of the page itself.
    Text(usize),
    /// Bytes of markup that is left out.
    Omitted {
        /// Their number.
        length: usize,
        /// They are no markup that is known, or misplaced.
        is_malformed: bool,
    },
    /// A fragment belongs in the place of some bytes.
    Include {
        /// Their number.
        length: usize,
        /// The fragment.
        include: Box<Include>,
    },
    /// More bytes are needed, or the end of the page; there are less than [`LONGEST_TAG`].
    Incomplete,
}

/// Finds the tags of a page in one pass, wherever its bytes are divided.
#[derive(Debug, Default)]
pub struct Cutter {
    place: Place,
    /// Within `<!--esi … -->`.
    is_conditional: bool,
    /// Blocks of SSI: names and texts.
    blocks: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Page,
    /// Within `<esi:remove>`, nested so often.
    Removed(usize),
    /// Within a CDATA section, whose text is no markup.
    Data,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marker {
    Tag,
    EndTag,
    Conditional,
    EndOfConditional,
    Directive,
    Data,
}

const MARKERS: [(&[u8], Marker); 6] = [
    (b"<esi:", Marker::Tag),
    (b"</esi:", Marker::EndTag),
    (b"<!--esi", Marker::Conditional),
    (b"-->", Marker::EndOfConditional),
    (server_side::BEGINNING, Marker::Directive),
    (b"<![CDATA[", Marker::Data),
];

const END_OF_DATA: &[u8] = b"]]>";

/// A place where markup begins, or may begin once more bytes are there.
enum NextMarker {
    Marker(usize, Marker),
    Beginning(usize),
    Nothing,
}

impl Cutter {
    /// Returns the part at the front of `input`, which is not empty. What is not part of it has to be given again, with
    /// the bytes that follow. `is_last`: no bytes follow.
    pub fn next(&mut self, input: &[u8], is_last: bool) -> Cut {
        match self.place {
            Place::Page => self.page(input, is_last),
            Place::Removed(depth) => self.removed(input, is_last, depth),
            Place::Data => self.data(input, is_last),
        }
    }

    fn page(&mut self, input: &[u8], is_last: bool) -> Cut {
        match self.find(input) {
            NextMarker::Marker(0, marker) => self.markup(input, is_last, marker),
            NextMarker::Beginning(0) if !is_last => Cut::Incomplete,
            NextMarker::Marker(at, _) => Cut::Text(at),
            NextMarker::Beginning(at) if !is_last => Cut::Text(at),
            NextMarker::Beginning(_) | NextMarker::Nothing => Cut::Text(input.len()),
        }
    }

    fn find(&self, input: &[u8]) -> NextMarker {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            let next = if self.is_conditional {
                memchr2(b'<', b'-', rest)
            } else {
                memchr(b'<', rest)
            };
            let Some(skipped) = next else {
                return NextMarker::Nothing;
            };
            at += skipped;
            let rest = &input[at..];
            let mut markers = MARKERS.iter();
            if let Some((_, marker)) = markers.find(|(text, _)| rest.starts_with(text)) {
                return NextMarker::Marker(at, *marker);
            }
            if MARKERS.iter().any(|(text, _)| text.starts_with(rest)) {
                return NextMarker::Beginning(at);
            }
            at += 1;
        }
    }

    fn markup(&mut self, input: &[u8], is_last: bool, marker: Marker) -> Cut {
        match marker {
            Marker::Tag => self.tag(input, is_last),
            Marker::EndTag => match end_of_tag(input, is_last) {
                Some(length) => omitted(length, !input.starts_with(b"</esi:include")),
                None => Cut::Incomplete,
            },
            Marker::Conditional => {
                let is_malformed = self.is_conditional;
                self.is_conditional = true;
                omitted(b"<!--esi".len(), is_malformed)
            }
            Marker::EndOfConditional => {
                self.is_conditional = false;
                omitted(b"-->".len(), false)
            }
            Marker::Directive => self.directive(input, is_last),
            Marker::Data => {
                self.place = Place::Data;
                Cut::Text(b"<![CDATA[".len())
            }
        }
    }

    fn tag(&mut self, input: &[u8], is_last: bool) -> Cut {
        let Some(length) = end_of_tag(input, is_last) else {
            return Cut::Incomplete;
        };
        let Some(inside) = input[b"<esi:".len()..length].strip_suffix(b">") else {
            return omitted(length, true);
        };
        let tag = EsiTag::read(inside);
        match tag.name {
            b"include" => include(length, Include::of_esi(tag.attributes())),
            b"comment" => omitted(length, !tag.is_closed),
            b"remove" if !tag.is_closed => {
                self.place = Place::Removed(1);
                omitted(length, false)
            }
            _ => omitted(length, true),
        }
    }

    fn directive(&mut self, input: &[u8], is_last: bool) -> Cut {
        let window = window(input);
        let is_cut_off = !is_last && input.len() < LONGEST_TAG;
        let Some(directive) = SsiDirective::read(window) else {
            return if is_cut_off {
                Cut::Incomplete
            } else {
                omitted(window.len(), true)
            };
        };
        match directive.name {
            b"include" => {
                let read = Include::of_ssi(directive.parameters());
                let fallback = directive
                    .parameter(b"stub")
                    .and_then(|stub| self.blocks.iter().find(|(name, _)| name == stub));
                let read = match fallback {
                    Some((_, text)) => read.map(|it| it.with_fallback(text.clone())),
                    None => read,
                };
                include(directive.length, read)
            }
            b"block" => {
                let Some((text, length)) = block(&window[directive.length..]) else {
                    return if is_cut_off {
                        Cut::Incomplete
                    } else {
                        omitted(directive.length, true)
                    };
                };
                let name = directive.parameter(b"name");
                let is_malformed = name.is_none() || self.blocks.len() == MOST_BLOCKS;
                if let (Some(name), false) = (name, is_malformed) {
                    self.blocks.push((name.to_vec(), text.to_vec()));
                }
                omitted(directive.length + length, is_malformed)
            }
            _ => omitted(directive.length, true),
        }
    }

    /// Leaves out what `<esi:remove>` contains.
    fn removed(&mut self, input: &[u8], is_last: bool, depth: usize) -> Cut {
        const BEGINNING: &[u8] = b"<esi:remove";
        const END: &[u8] = b"</esi:remove>";
        let mut at = 0;
        while let Some(skipped) = memchr(b'<', &input[at..]) {
            at += skipped;
            let rest = &input[at..];
            if rest.starts_with(END) {
                self.place = match depth {
                    1 => Place::Page,
                    more => Place::Removed(more - 1),
                };
                return omitted(at + END.len(), false);
            }
            if rest.starts_with(BEGINNING) && at == 0 {
                let Some(length) = end_of_tag(rest, is_last) else {
                    return Cut::Incomplete;
                };
                let tag = EsiTag::read(&rest[b"<esi:".len()..length - 1]);
                if tag.name == b"remove" && !tag.is_closed {
                    self.place = Place::Removed(depth + 1);
                }
                return omitted(length, false);
            }
            let is_beginning = END.starts_with(rest) || BEGINNING.starts_with(rest);
            if rest.starts_with(BEGINNING) || (is_beginning && !is_last) {
                return if at == 0 {
                    Cut::Incomplete
                } else {
                    omitted(at, false)
                };
            }
            at += 1;
        }
        // The end is missing where the page ends within.
        omitted(input.len(), is_last)
    }

    fn data(&mut self, input: &[u8], is_last: bool) -> Cut {
        if let Some(at) = memmem::find(input, END_OF_DATA) {
            self.place = Place::Page;
            return Cut::Text(at + END_OF_DATA.len());
        }
        // The end may have begun.
        let kept = if is_last { 0 } else { END_OF_DATA.len() - 1 };
        match input.len().saturating_sub(kept) {
            0 => Cut::Incomplete,
            length => Cut::Text(length),
        }
    }
}

/// Returns the length of a tag at the front; `None` if more bytes are needed. One whose quotes do not end ends at its
/// first `>`, and one without an end as late as a tag may end.
fn end_of_tag(input: &[u8], is_last: bool) -> Option<usize> {
    let window = window(input);
    match length(window) {
        Some(length) => Some(length),
        None if !is_last && input.len() < LONGEST_TAG => None,
        None => Some(memchr(b'>', window).map_or(window.len(), |at| at + 1)),
    }
}

fn window(input: &[u8]) -> &[u8] {
    &input[..input.len().min(LONGEST_TAG)]
}

fn include(length: usize, include: Option<Include>) -> Cut {
    match include.map(Box::new) {
        Some(include) => Cut::Include { length, include },
        None => omitted(length, true),
    }
}

const fn omitted(length: usize, is_malformed: bool) -> Cut {
    Cut::Omitted {
        length,
        is_malformed,
    }
}

#[cfg(test)]
mod tests;
