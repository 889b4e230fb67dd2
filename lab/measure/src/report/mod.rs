//! Reports: all that a directory of records says, on one page.
//!
//! [`of_folder`] finds the records and the pictures below a directory and joins them. Experiments
//! that are known have the tables and pictures that they are published with; of others the page has
//! every figure that [`figures`] reads from them. What is no record is named and left out.

mod known;
mod page;
mod primitives;
mod viewers;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use roxmltree::Document;
use thiserror::Error;

use crate::experiment::AnyRecord;
use crate::figures::{self, Figure};
use crate::plot::PlotError;
use crate::stats::Summary;

pub use page::{Block, Page, Section, Table};

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
    /// A picture cannot be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
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
    page.sections
        .extend(pictures.into_iter().map(|(place, blocks)| Section {
            title: format!("Pictures in {}", folder.join(place).display()),
            environment: None,
            blocks,
        }));
    if !left_out.is_empty() {
        page.sections.push(Section {
            title: "Left out".to_owned(),
            environment: None,
            blocks: left_out.into_iter().map(Block::Text).collect(),
        });
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
    let row = |figure: &Figure| {
        let summary = Summary::of(&figure.samples)?;
        let tell = |value| figure.unit.tell(value);
        Some(vec![
            figure.name.clone(),
            tell(summary.median),
            format!(
                "{} to {}",
                tell(summary.interval.0),
                tell(summary.interval.1)
            ),
            format!("{} to {}", tell(summary.min), tell(summary.max)),
            summary.samples.to_string(),
        ])
    };
    let mut rows: Vec<_> = figures.iter().filter_map(row).take(FIGURES_MAX).collect();
    if figures.len() > rows.len() {
        rows.push(vec![format!(
            "{} more are in the file",
            figures.len() - rows.len()
        )]);
    }
    let head = ["figure", "median", "it lies in", "samples from", "samples"];
    Block::Folded(
        format!("All {} figures", figures.len()),
        vec![Block::Table(Table {
            caption: "Medians, their intervals, and the range of all samples".to_owned(),
            head: head.map(str::to_owned).to_vec(),
            rows,
        })],
    )
}

fn section(file: &Path, record: &AnyRecord) -> Section {
    let name = match file.as_os_str().is_empty() {
        true => String::new(),
        false => format!(" ({})", file.display()),
    };
    let figures = figures::of(record);
    let mut blocks = known::blocks(record, &figures);
    if !figures.is_empty() {
        blocks.push(all_figures(&figures));
    }
    let settings = serde_json::to_string_pretty(&record.settings).unwrap_or_default();
    let settings = vec![Block::Terminal(settings)];
    blocks.push(Block::Folded("Settings".to_owned(), settings));
    Section {
        title: format!("{}{name}", known::title(&record.experiment)),
        environment: Some(record.environment.clone()),
        blocks,
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
        let wanted = path.extension().is_some_and(|e| e == "json" || e == "svg");
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
