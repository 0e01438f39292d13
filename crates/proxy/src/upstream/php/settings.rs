//! Settings of a group of FastCGI servers that run PHP.

use std::path::PathBuf;

/// Directories of uploads in WordPress, Drupal and MediaWiki, and those of libraries, where no script is for visitors.
const USUAL_DENIED: &[&str] = &[
    "*/wp-content/uploads/*",
    "*/wp-content/blogs.dir/*",
    "/files/*",
    "*/sites/*/files/*",
    "*/images/*",
    "*/vendor/*",
];

/// Settings of PHP scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhpSettings {
    /// Document root; required.
    pub root: Option<PathBuf>,
    /// Name of the index script, which also gets the paths that name no script and no file.
    pub index: String,
    /// Patterns of paths below which no script runs.
    pub deny: Vec<String>,
    /// Leaves connections open after a request.
    pub keep_alive: bool,
}

impl Default for PhpSettings {
    fn default() -> Self {
        Self {
            root: None,
            index: "index.php".to_owned(),
            deny: USUAL_DENIED.iter().map(|&it| it.to_owned()).collect(),
            keep_alive: false,
        }
    }
}
