//! What a server finds that was started before, and whether it can leave behind what it learns.
//!
//! Nothing is made here that is not there: it would be of the account that looks, and a server of
//! another account could write nothing to it.

use std::path::Path;

use onrush_server::library;

use super::rows::Row;
use crate::units::Size;

pub(super) fn row(state: Option<&Path>) -> Row {
    const WHAT: &str = "saved indexes";
    const MEANS: &str = "after a restart each film is read anew when it is first played";
    const NAME: &str = "onrush serve --state DIR, or StateDirectory=onrush in the service's unit";
    let Some(path) = state else {
        return Row::lacking(WHAT, "no state directory", MEANS).remedy(NAME);
    };
    let shown = path.display();
    // Where it cannot be asked, what follows says why.
    if matches!(library::indexes_folder(path).try_exists(), Ok(false)) {
        return Row::note(WHAT, format!("none yet; they will be in {shown}"));
    }
    match library::prepare_state(path).and_then(|()| library::saved_indexes(path)) {
        Ok((indexes, bytes)) => {
            let found = format!("{indexes} in {shown}, {}", Size(bytes));
            Row::good(WHAT, found)
        }
        Err(error) => Row::lacking(WHAT, format!("{shown}: {error}"), MEANS).remedy(NAME),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::rows::State;
    use super::*;

    #[test]
    fn who_looks_for_indexes_makes_none() {
        let folder = tempfile::tempdir().unwrap();
        for state in [folder.path().to_owned(), folder.path().join("state")] {
            let row = row(Some(state.as_path()));
            assert_eq!(row.state, State::Note, "{}", row.found);
            assert!(row.found.starts_with("none yet"), "{}", row.found);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_server_has_made_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        library::prepare_state(folder.path()).unwrap();
        let row = row(Some(folder.path()));
        assert_eq!(row.state, State::Good, "{}", row.found);
        assert!(row.found.starts_with("0 in "), "{}", row.found);
    }
}
