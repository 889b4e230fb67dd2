//! Axes: from where to where, and where the lines are.

use super::unit::Unit;

/// Lines that a picture's width or height has room for.
const TICKS_MAX: f64 = 8.0;

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
    is_log: bool,
}

impl Axis {
    /// An axis that shows all `values`, which are finite, and positive if it is logarithmic. One of
    /// quantities (`from_zero`) shows zero too; others do if it is near.
    pub(super) fn over(values: &[f64], scale: Scale, unit: Unit, from_zero: bool) -> Self {
        let low = values.iter().copied().reduce(f64::min).unwrap_or(1.0);
        let high = values.iter().copied().reduce(f64::max).unwrap_or(1.0);
        match scale {
            Scale::Linear if from_zero => Self::linear(low.min(0.0), high.max(0.0), unit),
            Scale::Linear if low >= 0.0 && low <= high / 2.0 => Self::linear(0.0, high, unit),
            Scale::Linear => Self::linear(low, high, unit),
            Scale::Log { base } => Self::log(low, high, base),
        }
    }

    fn linear(low: f64, high: f64, unit: Unit) -> Self {
        let (low, high) = match high > low {
            true => (low, high),
            // A single value stands in the middle.
            false => (low - low.abs().max(1.0), high + high.abs().max(1.0)),
        };
        let step = step(high - low, unit);
        let (first, last) = ((low / step).floor(), (high / step - 1e-9).ceil());
        Self {
            low: first * step,
            high: last * step,
            ticks: count(first, last, 1.0).map(|i| i * step).collect(),
            is_log: false,
        }
    }

    fn log(low: f64, high: f64, base: u32) -> Self {
        let base = f64::from(base.max(2));
        let power = |value: f64| value.ln() / base.ln();
        let mut first = (power(low) + 1e-9).floor();
        let mut last = (power(high) - 1e-9).ceil();
        if last <= first {
            // A single power stands in the middle.
            (first, last) = (first - 1.0, first + 1.0);
        }
        let stride = ((last - first) / (TICKS_MAX - 1.0))
            .log2()
            .ceil()
            .exp2()
            .max(1.0);
        let between: &[f64] = match base > 2.0 && last - first <= 2.0 {
            true => &[1.0, 2.0, 5.0],
            false => &[1.0],
        };
        let (low, high) = (base.powf(first), base.powf(last));
        let powers = count(first, last, stride).map(|power| base.powf(power));
        let ticks = powers.flat_map(|power| between.iter().map(move |times| times * power));
        Self {
            low,
            high,
            ticks: ticks.filter(|&tick| tick <= high * 1.000_001).collect(),
            is_log: true,
        }
    }

    /// Where a value is between `from` and `to`, the places of the axis' ends.
    pub(super) fn place(&self, value: f64, from: f64, to: f64) -> f64 {
        let part = match self.is_log {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        from + part * (to - from)
    }
}

/// From `first` up to `last` by `stride`: some ticks, whatever the numbers.
fn count(first: f64, last: f64, stride: f64) -> impl Iterator<Item = f64> {
    let all = (0_u32..1000).map(move |i| first + f64::from(i) * stride);
    all.take_while(move |&at| at <= last + 1e-9)
}

/// A round distance between lines: 1, 2 or 5 times a power of ten, or a power of two.
fn step(span: f64, unit: Unit) -> f64 {
    let least = span / (TICKS_MAX - 2.0);
    if unit == Unit::Bytes {
        return least.log2().ceil().exp2();
    }
    let power = 10_f64.powf(least.log10().floor());
    let times = [1.0, 2.0, 5.0]
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

    fn log(values: &[f64], base: u32) -> Axis {
        Axis::over(values, Scale::Log { base }, Unit::Count, true)
    }

    #[test]
    fn quantities_begin_at_zero_others_near_their_data() {
        let axis = linear(&[90.0, 101.0], true);
        assert_eq!((axis.low, axis.high), (0.0, 120.0));
        assert_eq!(axis.ticks, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0]);
        let axis = linear(&[-3.0, -1.0], true);
        assert_eq!((axis.low, axis.high), (-3.0, 0.0));
        let axis = linear(&[90.0, 101.0], false);
        assert_eq!((axis.low, axis.high), (90.0, 102.0));
        assert_eq!(linear(&[10.0, 101.0], false).low, 0.0);
    }

    #[test]
    fn bytes_are_cut_in_powers_of_two() {
        let axis = Axis::over(&[1.0, 65_536.0], Scale::Linear, Unit::Bytes, true);
        assert_eq!((axis.ticks[1], axis.high), (16_384.0, 65_536.0));
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
            let axis = log(values, 10);
            assert!(axis.low < axis.high, "{values:?}: {axis:?}");
        }
    }

    #[test]
    fn logarithmic_axes_have_few_lines_at_powers() {
        let axis = log(&[4096.0, 1_073_741_824.0], 2);
        assert_eq!((axis.low, axis.high), (4096.0, 1_073_741_824.0));
        assert!(axis.ticks.len() <= 9, "{:?}", axis.ticks);
        assert_eq!(axis.ticks[1], 65_536.0);
        let axis = log(&[90.0, 4000.0], 10);
        assert_eq!(axis.ticks, [10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!(log(&[3.0, 9.0], 10).ticks, [1.0, 2.0, 5.0, 10.0]);
    }

    #[test]
    fn equal_ratios_are_equal_distances_on_a_logarithmic_axis() {
        let axis = log(&[1.0, 100.0], 10);
        for (value, place) in [(1.0, 0.0), (10.0, 500.0), (100.0, 1000.0)] {
            assert!((axis.place(value, 0.0, 1000.0) - place).abs() < 1e-9);
        }
        assert_eq!(linear(&[0.0, 100.0], true).place(50.0, 900.0, 100.0), 500.0);
    }
}
