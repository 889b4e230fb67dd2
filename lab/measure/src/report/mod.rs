//! Reports: all that a directory of records says, on one page.
//!
//! [`of_folder`] finds the records and the pictures below a directory and joins them. Experiments
//! tell themselves as [`Report`]s ([`of`]); one that is not known is named. What is no record is
//! named and left out.

mod known;
pub mod model;
mod page;
pub mod primitives;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use roxmltree::Document;
use thiserror::Error;

use crate::experiment::AnyRecord;
use crate::stats::Summary;
use crate::table::{Block, Column, Figure, Report, table};

pub use known::of;
pub use page::{Page, Section};

/// Files that are looked at, at the most.
pub const FILES_MAX: usize = 1000;

/// Directories below the one given.
pub const DEPTH_MAX: usize = 4;

/// Rows of a table of figures; the file has all.
const FIGURES_MAX: usize = 400;

/// Bytes of a picture that is taken into a page.
const PICTURE_BYTES_MAX: u64 = 1 << 20;

/// Why there is no report.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The directory cannot be read.
    #[error("{}: {source}; give a directory that holds files written by --json", path.display())]
    Folder {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There are too many files.
    #[error("{}: has more than {FILES_MAX} records and pictures; give a part of \
     it", path.display())]
    Files {
        /// The directory.
        path: PathBuf,
    },
    /// Nothing was found.
    #[error("{}: holds no record; give a directory that holds files written by \
     --json", path.display())]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// The experiment is not one of ours, or not yet.
    #[error(
        "experiment {experiment:?} is not known; read its record with the onrush-lab that wrote \
         it, which is {version}"
    )]
    Unknown {
        /// Its name in the record.
        experiment: String,
        /// The version in the record.
        version: String,
    },
    /// The experiment is known, and its record has other fields.
    #[error(
        "this is no record of experiment {experiment:?} as this onrush-lab writes it: {source}; \
         read it with the onrush-lab that wrote it, which is {version}"
    )]
    Fields {
        /// Its name in the record.
        experiment: String,
        /// The version in the record.
        version: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// The page of all records and pictures in a directory and those below it.
///
/// # Errors
///
/// If there are none, or too many.
pub fn of_folder(folder: &Path) -> Result<Page, ReportError> {
    let mut files = Vec::new();
    collect(folder, folder, DEPTH_MAX, &mut files)?;
    files.sort();
    let mut page = Page {
        title: format!("Onrush: measurements in {}", folder.display()),
        sections: Vec::new(),
    };
    let mut left_out = Vec::new();
    let mut pictures: Vec<(PathBuf, Vec<Block>)> = Vec::new();
    for path in files {
        let name = path.strip_prefix(folder).unwrap_or(&path);
        if path.extension().is_some_and(|extension| extension == "svg") {
            match picture(&path) {
                Some(block) => {
                    let place = name.parent().map(Path::to_owned).unwrap_or_default();
                    match pictures.last_mut().filter(|(last, _)| *last == place) {
                        Some((_, blocks)) => blocks.push(block),
                        None => pictures.push((place, vec![block])),
                    }
                }
                None => left_out.push(format!("{}: no picture", name.display())),
            }
            continue;
        }
        match AnyRecord::read_any(&path) {
            Ok(record) => page.sections.push(section(name, &record)),
            Err(error) => left_out.push(error.to_string()),
        }
    }
    if page.sections.is_empty() {
        let path = folder.to_owned();
        return Err(ReportError::Empty { path });
    }
    let without_record = |title: String, blocks| Section {
        report: Report { title, blocks },
        environment: None,
    };
    for (place, blocks) in pictures {
        let title = format!("Pictures in {}", folder.join(place).display());
        page.sections.push(without_record(title, blocks));
    }
    if !left_out.is_empty() {
        let left_out = left_out.into_iter().map(Block::Text).collect();
        page.sections
            .push(without_record("Left out".to_owned(), left_out));
    }
    Ok(page)
}

/// The page of one record.
#[must_use]
pub fn of_record(title: &str, record: &AnyRecord) -> Page {
    Page {
        title: title.to_owned(),
        sections: vec![section(Path::new(""), record)],
    }
}

/// Every figure, a row each: what each record's page ends with.
fn all_figures(figures: &[Figure]) -> Block {
    let shown = figures.iter().take(FIGURES_MAX);
    let shown = shown.filter_map(|figure| Some((figure, Summary::of(&figure.samples)?)));
    let mut table = table! {
        "Medians, their intervals, and the range of all samples",
        for (figure, summary) in shown,
        let tell = |value| figure.unit.tell(value),
        let between = |(low, high)| format!("{} to {}", tell(low), tell(high));
        Column::key("figure") => figure.name.as_str(),
        Column::text("median") => tell(summary.median),
        Column::text("it lies in") => between(summary.interval),
        Column::text("samples from") => between((summary.min, summary.max)),
        Column::count("samples", 0) => summary.samples,
    };
    if figures.len() > FIGURES_MAX {
        let more = figures.len() - FIGURES_MAX;
        table.note(format!("{more} more are in the file"));
    }
    let title = format!("All {} figures", figures.len());
    Block::Folded(title, vec![table.into()])
}

fn section(file: &Path, record: &AnyRecord) -> Section {
    let mut report = of(record).unwrap_or_else(|error| {
        let mut report = Report::new(&format!("Experiment {}", record.experiment));
        report.warn([error.to_string()]);
        report
    });
    if !file.as_os_str().is_empty() {
        report.title += &format!(" ({})", file.display());
    }
    let figures = report.figures();
    if !figures.is_empty() {
        report.add([all_figures(&figures)]);
    }
    let settings = serde_json::to_string_pretty(&record.settings).unwrap_or_default();
    let settings = vec![Block::Lines(settings)];
    report.add([Block::Folded("Settings".to_owned(), settings)]);
    Section {
        report,
        environment: Some(record.environment.clone()),
    }
}

/// A picture with its own words for those who do not see it.
fn picture(path: &Path) -> Option<Block> {
    if fs::metadata(path).ok()?.len() > PICTURE_BYTES_MAX {
        return None;
    }
    let svg = fs::read_to_string(path).ok()?;
    let words = {
        let document = Document::parse(&svg).ok()?;
        let root = document.root_element();
        if !root.has_tag_name(("http://www.w3.org/2000/svg", "svg")) {
            return None;
        }
        let told = |name: &str| {
            root.children()
                .find(|node| node.tag_name().name() == name)?
                .text()
        };
        let words: Vec<_> = ["title", "desc"].into_iter().filter_map(told).collect();
        words.join(". ")
    };
    let name = path.file_name()?.to_string_lossy();
    let words = if words.is_empty() {
        name.into_owned()
    } else {
        words
    };
    Some(Block::Picture(words, svg))
}

/// All files that may be records or pictures. Links are not followed.
fn collect(
    root: &Path,
    folder: &Path,
    depth: usize,
    files: &mut Vec<PathBuf>,
) -> Result<(), ReportError> {
    let refused = |source| ReportError::Folder {
        path: folder.to_owned(),
        source,
    };
    for entry in fs::read_dir(folder).map_err(refused)? {
        let entry = entry.map_err(refused)?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(refused)?);
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let wanted = [".json", ".json.gz", ".svg"]
            .iter()
            .any(|end| name.ends_with(end));
        if kind.is_dir() && depth > 0 {
            collect(root, &path, depth - 1, files)?;
        } else if kind.is_file() && wanted {
            files.push(path);
        }
        if files.len() > FILES_MAX {
            let path = root.to_owned();
            return Err(ReportError::Files { path });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
