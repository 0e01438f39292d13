//! Flags of the command line.

/// A flag of the command line.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The option's name.
    pub option: &'static str,
    /// The heading of the flag in the help.
    pub group: &'static str,
    /// The form of the flag's value.
    pub takes: Takes,
    /// One line of help.
    pub help: &'static str,
    /// The default, in words.
    pub default: &'static str,
    /// The help in few words, if the short help lists the flag.
    pub brief: Option<&'static str>,
}

/// The form of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// No value.
    Nothing,
    /// `true` or `false`.
    Truth,
    /// A number.
    Number,
    /// One value with this placeholder.
    One(&'static str),
    /// One value with this placeholder; the flag may be repeated.
    Many(&'static str),
}
