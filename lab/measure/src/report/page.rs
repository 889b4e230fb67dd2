//! A page: sections of tables and pictures in one file of HTML that asks the network for nothing.
//!
//! It is light or dark as its reader likes, fits a phone and a sheet of paper, and can be read
//! without seeing: pictures tell in words what they show, with their figures in a table below, and
//! wide tables can be moved by keys.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::experiment::Environment;
use crate::plot::{self, Chart};
use crate::table::{Block, Column, Outcome, Report, Table};

/// A page that is being put together.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// What it is about.
    pub title: String,
    /// In order.
    pub sections: Vec<Section>,
}

/// One record, or what is said of others.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// What is told.
    pub report: Report,
    /// Where and when it was measured.
    pub environment: Option<Environment>,
}

impl Page {
    /// The page, to be written to a file.
    #[must_use]
    pub fn render(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) (PreEscaped(plot::styles())) }
                }
                body {
                    header { h1 { (self.title) } }
                    @if self.sections.len() > 1 {
                        nav aria-label="Contents" {
                            ol { @for (i, section) in self.sections.iter().enumerate() {
                                li { a href=(format!("#s{i}")) { (section.report.title) } }
                            } }
                        }
                    }
                    main { @for section in (0..).zip(&self.sections) { (self::section(section)) } }
                }
            }
        };
        page.into_string()
    }
}

fn section((number, section): (u32, &Section)) -> Markup {
    html! {
        section id=(format!("s{number}")) {
            h2 { (section.report.title) }
            @if let Some(environment) = &section.environment {
                p { code { (environment.command) } }
                p class="faint" { (environment.told()) }
            }
            @for block in &section.report.blocks { (self::block(block)) }
        }
    }
}

fn block(block: &Block) -> Markup {
    match block {
        Block::Heading(text) => html! { h3 { (text) } },
        Block::Text(text) => html! { p { (text) } },
        Block::Warning(text) => html! { p class="warning" { strong { "Warning: " } (text) } },
        Block::Verdict(verdict) => {
            let class = match verdict.outcome {
                Outcome::Kept => "kept",
                Outcome::Missed | Outcome::Void => "missed",
            };
            html! { p class=(class) { strong { (verdict.word()) ": " } (verdict.told()) } }
        }
        Block::Lines(text) => scrolled("Lines as they are", &html! { pre { (text) } }),
        Block::Table(table) if table.rows.is_empty() => html! {},
        Block::Table(table) => scrolled(&table.caption, &self::table(table)),
        Block::Chart(drawing) => {
            let chart = &drawing.chart;
            // One that cannot be drawn says why, and costs the reader no other.
            match chart.render_inline() {
                Err(error) => html! { p class="warning" { (chart.title()) ": " (error) } },
                Ok(svg) => {
                    let figures = scrolled("Figures of the picture", &table(&figures(chart)));
                    html! {
                        (picture(chart.title(), &html! { (PreEscaped(svg)) }))
                        details { summary { "These figures as a table" } (figures) }
                    }
                }
            }
        }
        // As an image: whatever is in the file, nothing of it runs.
        Block::Picture(words, svg) => {
            let source = format!(
                "data:image/svg+xml,{}",
                utf8_percent_encode(svg, NON_ALPHANUMERIC)
            );
            picture(words, &html! { img class="plot" alt=(words) src=(source); })
        }
        Block::Folded(title, blocks) => {
            html! { details { summary { (title) } @for it in blocks { (self::block(it)) } } }
        }
    }
}

/// What may be wider than the page moves within it, by keys too. A group and no region: regions are
/// landmarks, to be told apart by names that tables of several experiments share.
fn scrolled(name: &str, content: &Markup) -> Markup {
    html! { div class="wide" role="group" aria-label=(name) tabindex="0" { (content) } }
}

/// A picture. On a phone its letters would be too small if it were as wide as the screen: it is
/// wider and moves, which a line of text says there.
fn picture(name: &str, content: &Markup) -> Markup {
    html! {
        figure {
            div class="picture" role="group" aria-label=(name) tabindex="0" { (content) }
            p class="hint faint" aria-hidden="true" { "\u{2194} The picture goes on: move it \
             sideways." }
        }
    }
}

/// A table. If its rows have notes it is read row by row: on a phone each row is then a card, every
/// cell with the name of its column before it. Roles are spelled out, as what is not laid out as a
/// table is not told as one.
fn table(table: &Table) -> Markup {
    let has_notes = table.rows.iter().any(|row| !row.notes.is_empty());
    let labels: Vec<_> = table.columns.iter().map(Column::label).collect();
    html! {
        table class=[has_notes.then_some("cards")] role="table" {
            caption { (table.caption) }
            thead role="rowgroup" { tr role="row" { @for label in &labels {
                @if label.is_empty() { td role="cell" {} }
                @else { th scope="col" role="columnheader" { (label) } }
            } } }
            tbody role="rowgroup" {
                @for row in &table.rows {
                    tr role="row" { @for (i, (column, cell)) in table.cells(row).enumerate() {
                        @let told = column.tell(cell);
                        @if i == 0 { th scope="row" role="rowheader" { (told) } }
                        @else {
                            td class=[(!column.is_number()).then_some("words")] role="cell"
                                data-name=(labels[i]) { (told) }
                        }
                    } }
                    @if !row.notes.is_empty() {
                        tr class="note" role="row" {
                            td colspan=(labels.len()) role="cell" { (row.notes.join(" ")) }
                        }
                    }
                }
            }
        }
        @for note in &table.notes { p class="faint" { (note) } }
    }
}

/// The figures of a picture. What stands in it is told by the picture.
fn figures(chart: &Chart) -> Table {
    let (head, rows) = chart.table();
    let columns: Vec<_> = head.iter().map(|heading| Column::text(heading)).collect();
    let mut table = Table::new(chart.title(), columns);
    for row in rows {
        let cells: Vec<_> = row.into_iter().map(Into::into).collect();
        table.row(cells);
    }
    table
}

/// Colours are those of the pictures; text has a contrast of at least 4.5.
const STYLE: &str = "\
:root{--ground:#fff;--text:#1f2328;--faint:#57606a;--line:#d8dee4;--shade:#f4f6f8;--link:#005fa8;\
--good:#00694c;--bad:#a83200}
@media screen and \
(prefers-color-scheme:dark){:root{--ground:#14181d;--text:#e6eaf0;--faint:#a4adb8;\
--line:#333a43;--shade:#1d232a;--link:#6bb5f0;--good:#45d3a6;--bad:#ff9a55}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:64rem;padding:1rem;background:var(--ground);color:var(--text);\
font:1rem/1.5 system-ui,sans-serif;overflow-wrap:break-word}
h1{font-size:1.6rem;line-height:1.2}\
h2{font-size:1.3rem;margin-top:2.5rem;border-bottom:1px solid var(--line)}
h3{font-size:1.1rem;margin-top:1.8rem}
a{color:var(--link)}code,pre{font:.85rem/1.45 ui-monospace,monospace}
.faint{color:var(--faint);font-size:.85rem}
.warning,.missed{border-left:.25rem solid var(--bad);padding-left:.6rem}
.kept{border-left:.25rem solid var(--good);padding-left:.6rem}
.missed strong,.warning strong{color:var(--bad)}.kept strong{color:var(--good)}
.wide,.picture{overflow-x:auto;margin:1rem 0}
.picture{background:linear-gradient(to right,var(--ground) 1rem,transparent 2rem) local,\
linear-gradient(to left,var(--ground) 1rem,transparent 2rem) right local,\
linear-gradient(to right,var(--line),transparent .8rem),\
linear-gradient(to left,var(--line),transparent .8rem) right;background-repeat:no-repeat}
.hint{display:none;margin:-.5rem 0 1rem}
@media screen and (max-width:36rem){.hint{display:block}}
.wide:focus-visible,.picture:focus-visible,summary:focus-visible,a:focus-visible\
{outline:2px solid var(--link);outline-offset:2px}
table{border-collapse:collapse;font-size:.875rem;min-width:100%}
caption{text-align:left;font-weight:600;padding:.3rem 0}
th,td{padding:.3rem .7rem;border-bottom:1px solid var(--line);text-align:right;\
vertical-align:baseline;font-variant-numeric:tabular-nums}
thead th{background:var(--shade)}th:first-child{text-align:left;font-weight:500}
thead th:first-child{font-weight:700}td{white-space:nowrap}.words,td:last-child{white-space:normal}.words{text-align:left}
.note td{text-align:left;white-space:normal;color:var(--faint);padding-left:1.5rem}
@media screen and \
(max-width:36rem){.cards,.cards tbody,.cards tr,.cards th,.cards td{display:block}\
.cards caption{display:block}.cards \
thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}\
.cards th,.cards td{border:0;padding:.1rem 0;text-align:left;white-space:normal}\
.cards tbody th{font-weight:600;padding-top:.7rem}\
.cards td[data-name]{display:flex;justify-content:space-between;gap:1rem;text-align:right}\
.cards td[data-name]::before{content:attr(data-name);color:var(--faint);text-align:left}\
.cards td[data-name]:empty{display:none}\
.cards .note{border-bottom:1px solid var(--line);padding-bottom:.7rem}}
figure{margin:1rem 0}.plot{display:block;width:100%;min-width:34rem;max-width:48rem;height:auto}
details{margin:.5rem 0}summary{cursor:pointer;color:var(--link)}
@media print{body{max-width:none;padding:0;font-size:10pt}nav{display:none}\
.wide,.picture{overflow:visible}.plot{min-width:0}table{font-size:8pt}td{white-space:normal}\
figure,tr,h3{break-inside:avoid}h2,h3{break-after:avoid}\
details:not([open]){display:none}}
";
