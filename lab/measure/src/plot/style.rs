//! Colours, markers, dashes and hatchings, and the style sheet that turns them for the dark.
//!
//! The picture has its light colours written at each element, so that it is right without any style
//! sheet. The sheet finds them by their literals and exchanges them.

use plotters::style::RGBColor;

/// A colour on light and on dark ground.
#[derive(Clone, Copy, Debug)]
pub(super) struct Colour {
    pub(super) light: RGBColor,
    dark: RGBColor,
}

pub(super) const GROUND: Colour = colour(0xFF_FF_FF, 0x14_18_1D);
pub(super) const TEXT: Colour = colour(0x1F_23_28, 0xE6_EA_F0);
pub(super) const FAINT: Colour = colour(0x57_60_6A, 0xA4_AD_B8);
pub(super) const GRID: Colour = colour(0xD8_DE_E4, 0x33_3A_43);

/// One for each series. Each is at least three times as light, or as dark, as the ground.
pub(super) const SERIES: [Colour; 10] = [
    colour(0x00_5F_A8, 0x6B_B5_F0),
    colour(0xC4_4E_00, 0xFF_9A_55),
    colour(0x00_7F_5C, 0x45_D3_A6),
    colour(0xA8_3E_86, 0xF0_9B_CB),
    colour(0x83_68_00, 0xE3_C4_4A),
    colour(0x45_4B_52, 0xCF_D6_DD),
    colour(0x14_82_B8, 0x9C_E0_F7),
    colour(0x6E_3A_A0, 0xC7_9B_EA),
    colour(0xA0_1C_1C, 0xFF_8A_80),
    colour(0x2E_6E_12, 0x9B_D8_6A),
];

/// Drawn and left out, in units of the picture; nothing for a line without gaps.
const DASHES: [&str; 10] = [
    "",
    "22 9",
    "6 8",
    "22 8 6 8",
    "12 8",
    "",
    "34 10",
    "6 6 6 14",
    "30 6 6 6 6 6",
    "3 6",
];

/// What is drawn over a bar's colour, on a tile of 16 units.
const HATCHES: [&str; 10] = [
    "",
    "M-4 4 4 -4M0 16 16 0M12 20 20 12",
    "M0 4h16M0 12h16",
    "M4 0v16",
    "M-4 12 4 20M0 0 16 16M12 -4 20 4",
    "M0 8h16M8 0v16",
    "M0 8h16",
    "M-4 4 4 -4M0 16 16 0M12 20 20 12M-4 12 4 20M0 0 16 16M12 -4 20 4",
    "M8 0v16",
    "M0 4h16M0 12h16M4 0v16",
];

/// The series' colour; after the tenth they come again.
pub(super) fn series(index: usize) -> Colour {
    SERIES[index % SERIES.len()]
}

/// Which of the eight markers a series has.
pub(super) fn marker(index: usize) -> usize {
    (index + index / 8 * 4) % 8
}

/// The style sheet, for every picture alike.
pub(super) fn sheet() -> String {
    let mut sheet = String::new();
    for (i, colour) in SERIES.iter().enumerate() {
        let light = hex(colour.light);
        if !DASHES[i].is_empty() {
            sheet += &format!(
                ".plot polyline[stroke=\"{light}\"]{{stroke-dasharray:{}}}",
                DASHES[i]
            );
        }
    }
    sheet += ".plot polyline{stroke-linejoin:round}";
    sheet += "@media screen and (prefers-color-scheme:dark){";
    for colour in [GROUND, TEXT, FAINT, GRID].iter().chain(&SERIES) {
        let (light, dark) = (hex(colour.light), hex(colour.dark));
        for what in ["fill", "stroke"] {
            sheet += &format!(".plot [{what}=\"{light}\"]{{{what}:{dark}}}");
        }
    }
    sheet += "}";
    // After the colours: a bar has its hatching in the dark too.
    for (i, colour) in SERIES.iter().enumerate().skip(1) {
        let light = hex(colour.light);
        sheet += &format!(".plot rect[fill=\"{light}\"]{{fill:url(#hatch{i})}}");
    }
    sheet
}

/// The hatchings that [`sheet`] refers to, for pictures that have so many series of bars.
pub(super) fn hatches(series: usize) -> String {
    let mut patterns = "<defs>".to_owned();
    for i in 1..series.min(SERIES.len()) {
        patterns += &format!(
            "<pattern id=\"hatch{i}\" width=\"16\" height=\"16\" \
             patternUnits=\"userSpaceOnUse\"><path d=\"M0 0h16v16h-16z\" fill=\"{}\"/><path \
             d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2.5\"/></pattern>",
            hex(SERIES[i].light),
            HATCHES[i],
            hex(GROUND.light)
        );
    }
    patterns + "</defs>"
}

/// As it is written to the file.
fn hex(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

const fn colour(light: u32, dark: u32) -> Colour {
    Colour {
        light: rgb(light),
        dark: rgb(dark),
    }
}

const fn rgb(value: u32) -> RGBColor {
    let [_, r, g, b] = value.to_be_bytes();
    RGBColor(r, g, b)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::plot::{BAR_SERIES_MAX, SERIES_MAX};

    /// The contrast of two colours, 1 to 21 (WCAG 2.2, relative luminance).
    fn contrast(a: RGBColor, b: RGBColor) -> f64 {
        let linear = |part: u8| {
            let part = f64::from(part) / 255.0;
            match part <= 0.040_45 {
                true => part / 12.92,
                false => ((part + 0.055) / 1.055).powf(2.4),
            }
        };
        let luminance =
            |RGBColor(r, g, b)| 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn everything_stands_out_from_its_ground() {
        for text in [TEXT, FAINT] {
            assert!(contrast(text.light, GROUND.light) >= 4.5, "{text:?}");
            assert!(contrast(text.dark, GROUND.dark) >= 4.5, "{text:?}");
        }
        for series in SERIES {
            assert!(contrast(series.light, GROUND.light) >= 3.0, "{series:?}");
            assert!(contrast(series.dark, GROUND.dark) >= 3.0, "{series:?}");
        }
    }

    #[test]
    fn no_two_series_look_alike() {
        let looks = |i: usize| (hex(series(i).light), marker(i));
        let all: HashSet<_> = (0..SERIES_MAX).map(looks).collect();
        assert_eq!(all.len(), SERIES_MAX);
        let hatches: HashSet<_> = HATCHES.into_iter().take(BAR_SERIES_MAX).collect();
        assert_eq!(hatches.len(), BAR_SERIES_MAX);
    }
}
