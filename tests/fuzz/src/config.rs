//! Configuration: a text is taken, or each of its mistakes is told with its place.

use onrush_cli::embed::config_of;

/// Mistakes that are told of one text, at the most.
const LINES_MAX: usize = 1000;

/// Reads a text as the file of `onrush serve`.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    // Files that a text names are opened: not those that never end, or that somebody else needs.
    if ["/dev", "/proc", "/sys"]
        .iter()
        .any(|folder| text.contains(folder))
    {
        return;
    }
    let Err(error) = config_of(text) else { return };
    let told = format!("{error:#}");
    let lines: Vec<_> = told.lines().collect();
    assert!(
        (1..=LINES_MAX).contains(&lines.len()),
        "{} mistakes",
        lines.len()
    );
    for line in lines
        .iter()
        .filter(|line| line.starts_with("configuration:"))
    {
        let place = line.split(':').skip(1).take(2);
        let place: Vec<usize> = place.filter_map(|number| number.parse().ok()).collect();
        let [number, column] = place[..] else {
            panic!("{line:?} tells no place");
        };
        let rows = text.split('\n').count();
        let row = text.split('\n').nth(number - 1);
        let row = row.unwrap_or_else(|| panic!("{line:?} of {rows} lines"));
        assert!(column <= row.chars().count() + 1, "{line:?} of {row:?}");
    }
    assert_eq!(
        config_of(text).map_err(|error| format!("{error:#}")).err(),
        Some(told)
    );
}
