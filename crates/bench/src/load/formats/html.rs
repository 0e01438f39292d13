use crate::load::report::Report;

/// h
pub fn html(report: &Report) -> String {
    report.url.to_string()
}
