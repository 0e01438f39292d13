//! Matching of URI templates (RFC 6570): whether a topic or a document's path is a possible expansion of a
//! template.
//!
//! A template is compiled to a small automaton, whose states are all followed in parallel. A match takes time
//! proportional to the length of the template times that of the text, for any input.

use std::iter::repeat_n;

/// Limit of a variable's prefix length (RFC 6570 §2.4.1).
const LONGEST_PREFIX: u16 = 9999;
/// No limit.
const ALL: u16 = u16::MAX;
/// Limit of variables per template, which determines the cost of a match.
pub(crate) const MAX_VARIABLES: usize = 16;

/// Error compiling a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplateError {
    /// The text is not a template.
    Malformed,
    /// The template has too many variables.
    TooManyVariables,
}

/// A compiled template.
#[derive(Debug)]
pub(crate) struct Template(Vec<TemplateOp>);

/// An instruction of the automaton.
#[derive(Clone, Copy, Debug)]
enum TemplateOp {
    /// One literal character.
    Literal(TemplateChar),
    /// A run of value characters, limited in number.
    Run(CharRun),
    /// Continues at the next instruction and at this one.
    Fork(usize),
    /// Continues at this instruction.
    Jump(usize),
    /// The end of the text.
    End,
}

#[derive(Clone, Copy, Debug)]
struct CharRun {
    /// True if reserved characters are allowed unencoded.
    reserved: bool,
    /// The separator of list items, which is allowed, too.
    between: Option<u8>,
    most: u16,
}

/// A character of a template or text. An encoded byte is never split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TemplateChar {
    Byte(u8),
    /// `%XX`.
    Coded(u8, u8),
}

/// The properties of an expression's operator (RFC 6570, appendix A).
struct ExpansionOperator {
    first: Option<u8>,
    between: u8,
    named: bool,
    /// True if `=` follows the name of a variable with an empty value.
    equals_if_empty: bool,
    reserved: bool,
}

impl ExpansionOperator {
    const fn parse(letter: Option<u8>) -> (Self, usize) {
        let (first, between, named, equals_if_empty, reserved) = match letter {
            Some(b'+') => (None, b',', false, false, true),
            Some(b'#') => (Some(b'#'), b',', false, false, true),
            Some(b'.') => (Some(b'.'), b'.', false, false, false),
            Some(b'/') => (Some(b'/'), b'/', false, false, false),
            Some(b';') => (Some(b';'), b';', true, false, false),
            Some(b'?') => (Some(b'?'), b'&', true, true, false),
            Some(b'&') => (Some(b'&'), b'&', true, true, false),
            _ => (None, b',', false, false, false),
        };
        let length =
            matches!(letter, Some(b'+' | b'#' | b'.' | b'/' | b';' | b'?' | b'&')) as usize;
        let operator = Self {
            first,
            between,
            named,
            equals_if_empty,
            reserved,
        };
        (operator, length)
    }
}

/// A variable of an expression.
struct TemplateVariable<'a> {
    name: &'a [u8],
    explode: bool,
    most: u16,
}

impl Template {
    /// Compiles a template.
    pub(crate) fn parse(text: &str) -> Result<Self, TemplateError> {
        let compiler = TemplateCompiler::all(text.as_bytes()).ok_or(TemplateError::Malformed)?;
        if compiler.variables > MAX_VARIABLES {
            return Err(TemplateError::TooManyVariables);
        }
        Ok(Self(compiler.ops))
    }

    /// Returns whether the text is a possible expansion.
    pub(crate) fn matches(&self, topic: &str) -> bool {
        let mut now = ActiveStates::new(self.0.len());
        let mut next = ActiveStates::new(self.0.len());
        now.enter(&self.0, 0);
        for letter in letters(topic.as_bytes()) {
            for &state in &now.entered {
                match self.0[state] {
                    TemplateOp::Literal(literal) if literal == letter => {
                        next.enter(&self.0, state + 1);
                    }
                    TemplateOp::Run(run) if run.takes(letter) => {
                        let taken = now.taken[state].saturating_add(letter.characters());
                        if taken <= run.most {
                            next.go_on(&self.0, state, taken);
                        }
                    }
                    _ => {}
                }
            }
            std::mem::swap(&mut now, &mut next);
            next.clear();
            if now.entered.is_empty() {
                return false;
            }
        }
        now.entered.contains(&(self.0.len() - 1))
    }
}

/// The active states at one position of the text.
struct ActiveStates {
    entered: Vec<usize>,
    is_entered: Vec<bool>,
    /// The fewest characters consumed by each run: fewer leave all continuations possible.
    taken: Vec<u16>,
    waiting: Vec<usize>,
}

impl ActiveStates {
    fn new(count: usize) -> Self {
        Self {
            entered: Vec::with_capacity(count),
            is_entered: repeat_n(false, count).collect(),
            taken: repeat_n(0, count).collect(),
            waiting: Vec::new(),
        }
    }

    fn clear(&mut self) {
        for state in self.entered.drain(..) {
            self.is_entered[state] = false;
        }
    }

    /// Activates a state and everything reachable from it without input.
    fn enter(&mut self, ops: &[TemplateOp], state: usize) {
        self.waiting.push(state);
        while let Some(state) = self.waiting.pop() {
            self.taken[state] = 0;
            if std::mem::replace(&mut self.is_entered[state], true) {
                continue;
            }
            self.entered.push(state);
            self.follow(ops, state);
        }
    }

    /// Keeps a run active that has consumed `taken` characters.
    fn go_on(&mut self, ops: &[TemplateOp], state: usize, taken: u16) {
        if std::mem::replace(&mut self.is_entered[state], true) {
            self.taken[state] = self.taken[state].min(taken);
            return;
        }
        self.taken[state] = taken;
        self.entered.push(state);
        self.follow(ops, state);
        while let Some(state) = self.waiting.pop() {
            self.enter(ops, state);
        }
    }

    fn follow(&mut self, ops: &[TemplateOp], state: usize) {
        match ops[state] {
            TemplateOp::Run(_) => self.waiting.push(state + 1),
            TemplateOp::Fork(other) => self.waiting.extend([other, state + 1]),
            TemplateOp::Jump(other) => self.waiting.push(other),
            TemplateOp::Literal(_) | TemplateOp::End => {}
        }
    }
}

impl CharRun {
    fn takes(self, letter: TemplateChar) -> bool {
        match letter {
            TemplateChar::Coded(..) => true,
            TemplateChar::Byte(byte) => {
                is_unreserved(byte)
                    || self.reserved && is_reserved(byte)
                    || self.between == Some(byte)
            }
        }
    }
}

impl TemplateChar {
    /// Returns the number of characters completed by this byte: continuation bytes of UTF-8 count zero.
    const fn characters(self) -> u16 {
        match self {
            Self::Coded(b'8' | b'9' | b'a' | b'b' | b'A' | b'B', _) => 0,
            Self::Coded(..) | Self::Byte(_) => 1,
        }
    }
}

fn letters(text: &[u8]) -> impl Iterator<Item = TemplateChar> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if let [b'%', high, low, after @ ..] = rest
            && high.is_ascii_hexdigit()
            && low.is_ascii_hexdigit()
        {
            rest = after;
            return Some(TemplateChar::Coded(*high, *low));
        }
        let (&byte, after) = rest.split_first()?;
        rest = after;
        Some(TemplateChar::Byte(byte))
    })
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn is_reserved(byte: u8) -> bool {
    b":/?#[]@!$&'()*+,;=".contains(&byte)
}

/// Literals of a template (RFC 6570 §2.1).
fn may_be_literal(letter: TemplateChar) -> bool {
    match letter {
        TemplateChar::Coded(..) => true,
        TemplateChar::Byte(byte) => {
            byte > b' ' && byte != 0x7F && !b"\"'%<>\\^`{|}".contains(&byte)
        }
    }
}

/// The automaton being built.
#[derive(Default)]
struct TemplateCompiler {
    ops: Vec<TemplateOp>,
    variables: usize,
}

impl TemplateCompiler {
    fn all(text: &[u8]) -> Option<Self> {
        let mut compiler = Self::default();
        let mut rest = text;
        while let Some(begin) = rest.iter().position(|&it| it == b'{') {
            let (literal, expression) = rest.split_at(begin);
            compiler.literal(literal)?;
            let end = expression.iter().position(|&it| it == b'}')?;
            compiler.expression(&expression[1..end])?;
            rest = &expression[end + 1..];
        }
        compiler.literal(rest)?;
        compiler.ops.push(TemplateOp::End);
        Some(compiler)
    }

    fn literal(&mut self, text: &[u8]) -> Option<()> {
        for letter in letters(text) {
            may_be_literal(letter).then(|| self.ops.push(TemplateOp::Literal(letter)))?;
        }
        Some(())
    }

    fn byte(&mut self, byte: u8) {
        self.ops.push(TemplateOp::Literal(TemplateChar::Byte(byte)));
    }

    /// Compiles an expression, any of whose variables may be undefined.
    fn expression(&mut self, text: &[u8]) -> Option<()> {
        let (operator, length) = ExpansionOperator::parse(text.first().copied());
        // Jumps to patch: past an undefined variable before which none was defined, and past a defined one.
        let (mut nothing_yet, mut some): (Option<usize>, Vec<usize>) = (None, Vec::new());
        for variable in text[length..].split(|&byte| byte == b',') {
            let variable = TemplateVariable::parse(variable)?;
            self.variables += 1;
            self.patch(nothing_yet);
            nothing_yet = Some(self.fork());
            operator.first.into_iter().for_each(|byte| self.byte(byte));
            let to_item = self.jump();
            some.drain(..).for_each(|it| self.patch(Some(it)));
            some.push(self.fork());
            self.byte(operator.between);
            self.patch(Some(to_item));
            self.item(&operator, &variable);
            some.push(self.jump());
        }
        self.patch(nothing_yet);
        some.drain(..).for_each(|it| self.patch(Some(it)));
        Some(())
    }

    /// Compiles the expansion of one variable.
    fn item(&mut self, operator: &ExpansionOperator, variable: &TemplateVariable<'_>) {
        let value = CharRun {
            reserved: operator.reserved,
            between: None,
            most: variable.most,
        };
        match (operator.named, variable.explode) {
            (false, false) => self.list(value),
            (false, true) => {
                let to_pairs = self.fork();
                self.ops.push(TemplateOp::Run(CharRun {
                    between: Some(operator.between),
                    ..value
                }));
                let to_end = self.jump();
                self.patch(Some(to_pairs));
                self.pairs(operator, value, false);
                self.patch(Some(to_end));
            }
            (true, false) => {
                let name = letters(variable.name).map(TemplateOp::Literal);
                self.ops.extend(name);
                let without = (!operator.equals_if_empty).then(|| self.fork());
                self.byte(b'=');
                self.list(value);
                self.patch(without);
            }
            // With explode, each list item and each pair has its own name.
            (true, true) => self.pairs(operator, value, !operator.equals_if_empty),
        }
    }

    /// Compiles a value or a comma-separated list. A variable with a prefix length is a single value.
    fn list(&mut self, value: CharRun) {
        let between = (value.most == ALL).then_some(b',');
        self.ops.push(TemplateOp::Run(CharRun { between, ..value }));
    }

    /// Compiles names and values.
    fn pairs(&mut self, operator: &ExpansionOperator, value: CharRun, may_be_names_only: bool) {
        let begin = self.ops.len();
        self.ops.push(TemplateOp::Run(value));
        let name_only = may_be_names_only.then(|| self.fork());
        self.byte(b'=');
        self.ops.push(TemplateOp::Run(value));
        self.patch(name_only);
        let to_end = self.fork();
        self.byte(operator.between);
        self.ops.push(TemplateOp::Jump(begin));
        self.patch(Some(to_end));
    }

    fn fork(&mut self) -> usize {
        self.ops.push(TemplateOp::Fork(0));
        self.ops.len() - 1
    }

    fn jump(&mut self) -> usize {
        self.ops.push(TemplateOp::Jump(0));
        self.ops.len() - 1
    }

    /// Sets the target of a fork or jump to the next instruction.
    fn patch(&mut self, at: Option<usize>) {
        let here = self.ops.len();
        if let Some(TemplateOp::Fork(to) | TemplateOp::Jump(to)) =
            at.and_then(|at| self.ops.get_mut(at))
        {
            *to = here;
        }
    }
}

impl<'a> TemplateVariable<'a> {
    /// Parses a variable (RFC 6570 §2.3 and 2.4).
    fn parse(text: &'a [u8]) -> Option<Self> {
        let colon = text.iter().position(|&byte| byte == b':');
        let (name, explode, most) = match (text.strip_suffix(b"*"), colon) {
            (Some(name), _) => (name, true, ALL),
            (None, Some(colon)) => {
                let digits = std::str::from_utf8(&text[colon + 1..]).ok()?;
                let most = digits
                    .parse()
                    .ok()
                    .filter(|_| !digits.starts_with(['0', '+']))?;
                (&text[..colon], false, most)
            }
            (None, None) => (text, false, ALL),
        };
        let is_name = !name.is_empty()
            && name.split(|&byte| byte == b'.').all(|part| {
                let is_of_names = |letter| match letter {
                    TemplateChar::Coded(..) => true,
                    TemplateChar::Byte(byte) => byte.is_ascii_alphanumeric() || byte == b'_',
                };
                !part.is_empty() && letters(part).all(is_of_names)
            });
        (is_name && (most == ALL || most <= LONGEST_PREFIX)).then_some(Self {
            name,
            explode,
            most,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(template: &str, matched: &[&str], others: &[&str]) {
        let compiled = Template::parse(template).expect("a template");
        for topic in matched {
            assert!(compiled.matches(topic), "{template} and {topic}");
        }
        for topic in others {
            assert!(!compiled.matches(topic), "{template} and {topic}");
        }
    }

    /// The examples expand the values of RFC 6570 §3.2.
    #[test]
    fn expansions_of_the_rfc_are_matched() {
        for (template, expansions) in [
            // §1.2, level 1 and 2
            ("{var}", &["value", ""][..]),
            ("{hello}", &["Hello%20World%21"]),
            ("{+var}", &["value"]),
            ("{+hello}", &["Hello%20World!"]),
            ("{+path}/here", &["/foo/bar/here"]),
            ("here?ref={+path}", &["here?ref=/foo/bar"]),
            ("X{#var}", &["X#value", "X"]),
            ("X{#hello}", &["X#Hello%20World!"]),
            // Level 3
            ("map?{x,y}", &["map?1024,768"]),
            (
                "{x,hello,y}",
                &["1024,Hello%20World%21,768", "1024,768", "768"],
            ),
            ("{+x,hello,y}", &["1024,Hello%20World!,768"]),
            ("{+path,x}/here", &["/foo/bar,1024/here"]),
            ("{#x,hello,y}", &["#1024,Hello%20World!,768"]),
            ("{#path,x}/here", &["#/foo/bar,1024/here"]),
            ("X{.var}", &["X.value"]),
            ("X{.x,y}", &["X.1024.768", "X.1024", "X"]),
            ("{/var}", &["/value"]),
            (
                "{/var,x}/here",
                &["/value/1024/here", "/here", "/1024/here"],
            ),
            ("{;x,y}", &[";x=1024;y=768", ";y=768"]),
            ("{;x,y,empty}", &[";x=1024;y=768;empty"]),
            ("{?x,y}", &["?x=1024&y=768", "?y=768", ""]),
            ("{?x,y,empty}", &["?x=1024&y=768&empty="]),
            ("?fixed=yes{&x}", &["?fixed=yes&x=1024"]),
            ("{&x,y,empty}", &["&x=1024&y=768&empty="]),
            // Level 4
            ("{var:3}", &["val", "v", ""]),
            ("{var:30}", &["value"]),
            ("{list}", &["red,green,blue"]),
            ("{list*}", &["red,green,blue"]),
            ("{keys}", &["semi,%3B,dot,.,comma,%2C"]),
            ("{keys*}", &["semi=%3B,dot=.,comma=%2C"]),
            ("{+path:6}/here", &["/foo/b/here"]),
            ("{+list}", &["red,green,blue"]),
            ("{+keys*}", &["semi=;,dot=.,comma=,"]),
            ("{#path:6}/here", &["#/foo/b/here"]),
            ("{#keys*}", &["#semi=;,dot=.,comma=,"]),
            ("X{.var:3}", &["X.val"]),
            ("X{.list}", &["X.red,green,blue"]),
            ("X{.list*}", &["X.red.green.blue"]),
            ("X{.keys*}", &["X.semi=%3B.dot=..comma=%2C"]),
            ("{/var:1,var}", &["/v/value"]),
            ("{/list}", &["/red,green,blue"]),
            ("{/list*,path:4}", &["/red/green/blue/%2Ffoo"]),
            ("{/keys*}", &["/semi=%3B/dot=./comma=%2C"]),
            ("{;hello:5}", &[";hello=Hello"]),
            ("{;list}", &[";list=red,green,blue"]),
            ("{;list*}", &[";list=red;list=green;list=blue"]),
            ("{;keys*}", &[";semi=%3B;dot=.;comma=%2C"]),
            ("{?var:3}", &["?var=val"]),
            ("{?list}", &["?list=red,green,blue"]),
            ("{?list*}", &["?list=red&list=green&list=blue"]),
            ("{?keys*}", &["?semi=%3B&dot=.&comma=%2C"]),
            ("{&keys*}", &["&semi=%3B&dot=.&comma=%2C"]),
            ("{+half}", &["50%25"]),
            ("{dom.name}", &["www.example.com"]),
            (
                "https://example.com/books/{id}",
                &["https://example.com/books/1"],
            ),
        ] {
            check(template, expansions, &[]);
        }
    }

    #[test]
    fn impossible_expansions_are_not_matched() {
        check(
            "https://example.com/books/{id}",
            &[
                "https://example.com/books/",
                "https://example.com/books/a%2Fb",
            ],
            &[
                "https://example.com/books",
                "https://example.com/books/1/2",
                "https://example.com/books/1?x",
                "https://example.com/books/a b",
                "https://example.com/books/é",
                "https://example.com/books/%2",
                "http://example.com/books/1",
                "https://example.com/books/{id}",
                "",
            ],
        );
        check(
            "/users/{?topic}",
            &["/users/?topic=https%3A%2F%2Fa"],
            &["/users/?topics=a", "/users/?topic"],
        );
        check("{;x}", &[";x", ";x=1", ""], &[";y=1", ";xy", ";x=1;x=2"]);
        check("{?x*}", &["?a=1&b=2"], &["?a", "?a=1&b"]);
        check("{x}{y}", &["ab", ""], &["a/b"]);
        check("a%2Fb{x}", &["a%2Fb", "a%2Fb%20"], &["a%2fb", "a/b"]);
        check("{/x,y}", &["/a", "/a/b"], &["/a/b/c", "a"]);
        check("{.list*}", &[".a.b"], &["a.b", ".a/b"]);
    }

    #[test]
    fn a_prefix_counts_characters() {
        check("{x:2}", &["", "a", "ab", "%20a"], &["abc", "a,b"]);
        check(
            "{x:1}",
            &["%C3%A9", "%F0%9F%98%80"],
            &["%C3%A9%C3%A9", "%C3%A9a"],
        );
        check("{x:2}c{y}", &["abc", "cc", "ccc", "cccc"], &["abdc"]);
        check("{x:2,y:1}", &["ab,c", "ab", "c"], &["abc", "ab,cd"]);
    }

    #[test]
    fn invalid_templates_are_distinguished() {
        for wrong in [
            "{",
            "}",
            "a}b",
            "{}",
            "{a",
            "{a}}",
            "{{a}}",
            "{=a}",
            "{!a}",
            "{|a}",
            "{@a}",
            "{a-b}",
            "{a:0}",
            "{a:10000}",
            "{a:x}",
            "{a:+1}",
            "{a*:1}",
            "{a:1*}",
            "{a,}",
            "{,a}",
            "{.}",
            "{a..b}",
            "{ a}",
            "a b{x}",
            "a'{x}",
            "%{x}",
            "%2{x}",
            "a|{x}",
            "<{x}",
            "\\{x}",
        ] {
            let parsed = Template::parse(wrong).map(|_| ());
            assert_eq!(parsed, Err(TemplateError::Malformed), "{wrong}");
        }
        for right in [
            "",
            "a",
            "{a}",
            "é{a}",
            "{a.b}",
            "{%41}",
            "{+a*,b:3}",
            "{a_1}",
            "{a:9999}",
        ] {
            assert!(Template::parse(right).is_ok(), "{right}");
        }
    }

    #[test]
    fn the_cost_of_a_match_is_bounded() {
        let text = "a".repeat(1000) + "!";
        for one in ["{a}", "{+a:9999}", "{?a*}", "{/a*}"] {
            let template = one.repeat(MAX_VARIABLES);
            let compiled = Template::parse(&template).expect("a template");
            assert!(
                compiled.0.len() < 16 * MAX_VARIABLES,
                "{}",
                compiled.0.len()
            );
            assert_eq!(compiled.matches(&text), one == "{+a:9999}");
            let parsed = Template::parse(&(template + one)).map(|_| ());
            assert_eq!(parsed, Err(TemplateError::TooManyVariables));
        }
    }
}
