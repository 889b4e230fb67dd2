//! The processors that a command is to use, as an option.

/// The processors of `--cores`, in the order given.
#[derive(Clone, Debug)]
pub(crate) struct Cores(pub(crate) Vec<usize>);

const CORES_MAX: usize = 1024;

/// Reads `0,2-3`.
pub(crate) fn cores(text: &str) -> Result<Cores, String> {
    let mut found = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let parsed = first
            .trim()
            .parse::<usize>()
            .ok()
            .zip(last.trim().parse::<usize>().ok());
        match parsed.filter(|&(first, last)| first <= last && last < CORES_MAX) {
            Some((first, last)) => found.extend(first..=last),
            None => {
                let allowed = format!("write numbers below {CORES_MAX} and ranges, as in 0,2-3");
                return Err(format!("\"{part}\" names no processor; {allowed}"));
            }
        }
    }
    let mut sorted = found.clone();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("processor {} is named twice", pair[0])),
        None => Ok(Cores(found)),
    }
}
