//! Reports of unknown options, with the most similar name or the table that the option belongs to.

use super::mistake::{Mistake, Mistakes};
use super::options;
use super::raw::Table;
use super::suggest::nearest;

impl Table<'_> {
    /// Notes every unknown option.
    pub(super) fn refuse_rest(self, mistakes: &mut Mistakes) {
        self.refuse(mistakes, suggestion);
    }

    /// Notes every unknown option of a table inside a route, where options of the route are often put by mistake.
    pub(super) fn refuse_rest_inside(self, inner: &str, mistakes: &mut Mistakes) {
        self.refuse(mistakes, |name, known| {
            if options::of_a_route().any(|about| about.name == name) {
                return format!("it belongs to the route: next to `{inner}`, not inside it");
            }
            suggestion(name, known)
        });
    }

    fn refuse(self, mistakes: &mut Mistakes, suggest: impl Fn(&str, &[&'static str]) -> String) {
        let (unknown, known) = self.unknown();
        for key in unknown {
            let what = format!("unknown option `{}`", key.name);
            let mistake = Mistake::new(&key.place, what);
            mistakes.note(mistake.remedy(suggest(&key.name, &known)));
        }
    }
}

fn suggestion(name: &str, known: &[&'static str]) -> String {
    if options::top_level().any(|about| about.name == name) {
        return "it belongs at the top of the file, above the first [table]".to_owned();
    }
    let inner = options::tables_of_a_route();
    let inner = inner.iter().filter(|(table, _)| known.contains(table));
    for (table, abouts) in inner {
        if let Some(about) = abouts.iter().find(|about| about.name == name) {
            let example = about.example_in_file();
            return format!("it belongs inside `{table}`: {table} = {{ {name} = {example} }}");
        }
    }
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.len() > 10 => "`microcache config --reference` lists all options".to_owned(),
        None => format!("options here: {}", known.join(", ")),
    }
}
