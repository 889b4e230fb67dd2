//! Axes: from where to where, and where the lines are.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

use super::Unit;

/// Lines that a picture's width or height has room for.
const TICKS_MAX: usize = 8;

/// How distances on an axis grow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Scale {
    Linear,
    Log { base: u32 },
}

/// One side of a picture.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) ticks: Vec<f64>,
    scale: Scale,
    unit: Unit,
}

impl Axis {
    /// An axis that shows all `values`, which are finite, and positive if it is logarithmic. One of
    /// quantities (`from_zero`) shows zero too; others do if it is near.
    pub(super) fn over(values: &[f64], scale: Scale, unit: Unit, from_zero: bool) -> Self {
        let low = values.iter().copied().reduce(f64::min);
        let high = values.iter().copied().reduce(f64::max);
        let (low, high) = (low.unwrap_or(1.0), high.unwrap_or(1.0));
        match scale {
            Scale::Linear => Self::linear(low, high, unit, from_zero),
            Scale::Log { .. } => Self::log(low, high, scale, unit),
        }
    }

    fn linear(low: f64, high: f64, unit: Unit, from_zero: bool) -> Self {
        let is_near = low >= 0.0 && low <= high / 2.0;
        let low = if from_zero || is_near {
            low.min(0.0)
        } else {
            low
        };
        let high = if from_zero { high.max(0.0) } else { high };
        let (low, high) = match high > low {
            true => (low, high),
            // A single value stands in the middle.
            false => (low - low.abs().max(1.0), high + high.abs().max(1.0)),
        };
        let step = step(high - low, unit);
        let (first, last) = ((low / step).floor(), (high / step - 1e-9).ceil());
        let count = (last - first).min(1e3);
        let ticks: Vec<_> = (0_u32..)
            .map(f64::from)
            .take_while(|&i| i <= count)
            .map(|i| (first + i) * step)
            .collect();
        Self {
            low: first * step,
            high: last * step,
            ticks,
            scale: Scale::Linear,
            unit,
        }
    }

    fn log(low: f64, high: f64, scale: Scale, unit: Unit) -> Self {
        let base = scale.base();
        let power = |value: f64| value.ln() / base.ln();
        let mut first = (power(low) + 1e-9).floor();
        let mut last = (power(high) - 1e-9).ceil();
        if last <= first {
            // A single power stands in the middle.
            (first, last) = (first - 1.0, first + 1.0);
        }
        let mut stride = 1.0;
        while (last - first) / stride >= TICKS_MAX as f64 {
            stride *= 2.0;
        }
        let between: &[f64] = match (base > 2.0, last - first <= 2.0) {
            (true, true) => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let powers = (0_u32..).map(|i| first + f64::from(i) * stride);
        let (low, high) = (base.powf(first), base.powf(last));
        let ticks = powers
            .take_while(|&p| p <= last + 1e-9)
            .flat_map(|p| between.iter().map(move |m| m * base.powf(p)))
            .filter(|&tick| tick <= high * 1.000_001)
            .collect();
        Self {
            low,
            high,
            ticks,
            scale,
            unit,
        }
    }

    /// The label at a line.
    pub(super) fn told(&self, tick: f64) -> String {
        self.unit.tell(tick)
    }

    /// How far along the axis, from 0 to 1.
    fn part(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log { .. } => (value / self.low).ln() / (self.high / self.low).ln(),
        }
    }
}

impl Scale {
    fn base(self) -> f64 {
        match self {
            Self::Linear => 10.0,
            Self::Log { base } => f64::from(base.max(2)),
        }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let at = f64::from(limit.0) + self.part(*value) * f64::from(limit.1 - limit.0);
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a place in the picture, cut to its size"
        )]
        {
            at.round().clamp(-1e6, 1e6) as i32
        }
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

/// A round distance between lines: 1, 2 or 5 times a power of ten, or a power of two.
fn step(span: f64, unit: Unit) -> f64 {
    let least = span / (TICKS_MAX as f64 - 2.0);
    if unit.is_binary() {
        return least.log2().ceil().exp2();
    }
    let power = 10_f64.powf(least.log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|times| times * power >= least * (1.0 - 1e-9));
    times.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linear(values: &[f64], from_zero: bool) -> Axis {
        Axis::over(values, Scale::Linear, Unit::Count, from_zero)
    }

    #[test]
    fn quantities_begin_at_zero_and_end_at_a_round_number() {
        let axis = linear(&[90.0, 101.0], true);
        assert_eq!((axis.low, axis.high), (0.0, 120.0));
        assert_eq!(axis.ticks, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0]);
        let axis = linear(&[-3.0, -1.0], true);
        assert_eq!((axis.low, axis.high), (-3.0, 0.0));
    }

    #[test]
    fn other_axes_begin_near_their_data() {
        let axis = linear(&[90.0, 101.0], false);
        assert_eq!((axis.low, axis.high), (90.0, 102.0));
        assert_eq!(linear(&[10.0, 101.0], false).low, 0.0);
    }

    #[test]
    fn bytes_are_cut_in_powers_of_two() {
        let axis = Axis::over(&[1.0, 65_536.0], Scale::Linear, Unit::Bytes, true);
        assert_eq!(axis.ticks[1], 16_384.0);
        assert_eq!(axis.high, 65_536.0);
    }

    #[test]
    fn a_single_value_and_none_have_an_axis_with_room() {
        for values in [&[][..], &[0.0], &[7.0], &[-7.0], &[1e-30], &[1e30]] {
            let axis = linear(values, false);
            assert!(axis.low < axis.high, "{values:?}: {axis:?}");
            assert!(axis.ticks.len() >= 2, "{values:?}: {axis:?}");
            assert!(axis.ticks.iter().all(|tick| tick.is_finite()));
        }
        for values in [&[][..], &[1.0], &[7.0], &[1e-30]] {
            let axis = Axis::over(values, Scale::Log { base: 10 }, Unit::Count, false);
            assert!(axis.low < axis.high, "{values:?}: {axis:?}");
        }
    }

    #[test]
    fn logarithmic_axes_have_lines_at_powers_and_few_of_them() {
        let axis = Axis::over(
            &[4096.0, 1_073_741_824.0],
            Scale::Log { base: 2 },
            Unit::Bytes,
            false,
        );
        assert_eq!((axis.low, axis.high), (4096.0, 1_073_741_824.0));
        assert!(axis.ticks.len() <= TICKS_MAX + 1, "{:?}", axis.ticks);
        assert_eq!(axis.ticks[1], 65_536.0);
        let axis = Axis::over(&[90.0, 4000.0], Scale::Log { base: 10 }, Unit::Count, true);
        assert_eq!((axis.low, axis.high), (10.0, 10_000.0));
        let told: Vec<_> = axis.ticks.iter().map(|tick| axis.told(*tick)).collect();
        assert_eq!(told, ["10", "100", "1000", "10\u{202f}000"]);
    }

    #[test]
    fn equal_ratios_are_equal_distances_on_a_logarithmic_axis() {
        let axis = Axis::over(&[1.0, 100.0], Scale::Log { base: 10 }, Unit::Count, false);
        assert_eq!(axis.map(&1.0, (0, 1000)), 0);
        assert_eq!(axis.map(&10.0, (0, 1000)), 500);
        assert_eq!(axis.map(&100.0, (0, 1000)), 1000);
        let axis = linear(&[0.0, 100.0], true);
        assert_eq!(axis.map(&50.0, (900, 100)), 500);
    }
}
