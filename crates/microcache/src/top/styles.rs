//! Styles of the screen.

use ratatui::style::{Color, Modifier, Style};

pub(super) const QUIET: Style = Style::new().add_modifier(Modifier::DIM);
pub(super) const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
pub(super) const CLIENTS: Style = Style::new().fg(Color::Cyan);
pub(super) const ORIGIN: Style = Style::new().fg(Color::Yellow);
pub(super) const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
pub(super) const MARKED: Style = Style::new().add_modifier(Modifier::REVERSED);
