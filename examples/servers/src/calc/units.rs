//! Units and how they convert. All factors are exact by definition of the units.

use super::exact::Number;
use super::expression::{ExpressionError, evaluate};
use std::fmt;

/// What is measured. Only units of the same dimension convert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dimension {
    Length,
    Mass,
    Time,
    Data,
    Volume,
    Speed,
    Temperature,
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "length",
            Self::Mass => "mass",
            Self::Time => "time",
            Self::Data => "data",
            Self::Volume => "volume",
            Self::Speed => "speed",
            Self::Temperature => "temperature",
        })
    }
}

/// One unit.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) dimension: Dimension,
    /// The symbol first, then other ways to write it.
    names: &'static [&'static str],
    /// How many base units one is, as an expression.
    factor: &'static str,
    /// Added before multiplying: temperatures have different zeros.
    shift: &'static str,
}

impl Unit {
    pub(crate) fn symbol(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }
}

const fn unit(dimension: Dimension, names: &'static [&'static str], factor: &'static str) -> Unit {
    Unit { dimension, names, factor, shift: "0" }
}

const fn degrees(names: &'static [&'static str], factor: &'static str, shift: &'static str) -> Unit {
    Unit { dimension: Dimension::Temperature, names, factor, shift }
}

use Dimension::{Data, Length, Mass, Speed, Time, Volume};

/// Volumes are those of the United States, as in recipes.
pub(crate) const UNITS: &[Unit] = &[
    unit(Length, &["nm", "nanometer", "nanometre"], "1e-9"),
    unit(Length, &["µm", "um", "μm", "micrometer", "micrometre"], "1e-6"),
    unit(Length, &["mm", "millimeter", "millimetre"], "0.001"),
    unit(Length, &["cm", "centimeter", "centimetre"], "0.01"),
    unit(Length, &["m", "meter", "metre"], "1"),
    unit(Length, &["km", "kilometer", "kilometre"], "1000"),
    unit(Length, &["in", "inch", "inches"], "0.0254"),
    unit(Length, &["ft", "foot", "feet"], "0.3048"),
    unit(Length, &["yd", "yard"], "0.9144"),
    unit(Length, &["mi", "mile"], "1609.344"),
    unit(Length, &["nmi", "nautical mile"], "1852"),
    unit(Mass, &["mg", "milligram"], "1e-6"),
    unit(Mass, &["g", "gram"], "0.001"),
    unit(Mass, &["kg", "kilogram", "kilo"], "1"),
    unit(Mass, &["t", "tonne", "metric ton"], "1000"),
    unit(Mass, &["oz", "ounce"], "0.45359237 / 16"),
    unit(Mass, &["lb", "lbs", "pound"], "0.45359237"),
    unit(Mass, &["st", "stone"], "0.45359237 * 14"),
    unit(Time, &["ms", "millisecond"], "0.001"),
    unit(Time, &["s", "sec", "second"], "1"),
    unit(Time, &["min", "minute"], "60"),
    unit(Time, &["h", "hr", "hour"], "3600"),
    unit(Time, &["d", "day"], "86400"),
    unit(Time, &["wk", "week"], "604800"),
    unit(Data, &["bit"], "1/8"),
    unit(Data, &["kbit", "kb", "kilobit"], "1e3/8"),
    unit(Data, &["Mbit", "Mb", "megabit"], "1e6/8"),
    unit(Data, &["Gbit", "Gb", "gigabit"], "1e9/8"),
    unit(Data, &["B", "byte"], "1"),
    unit(Data, &["kB", "KB", "kilobyte"], "1e3"),
    unit(Data, &["MB", "megabyte"], "1e6"),
    unit(Data, &["GB", "gigabyte"], "1e9"),
    unit(Data, &["TB", "terabyte"], "1e12"),
    unit(Data, &["PB", "petabyte"], "1e15"),
    unit(Data, &["KiB", "kibibyte"], "2^10"),
    unit(Data, &["MiB", "mebibyte"], "2^20"),
    unit(Data, &["GiB", "gibibyte"], "2^30"),
    unit(Data, &["TiB", "tebibyte"], "2^40"),
    unit(Data, &["PiB", "pebibyte"], "2^50"),
    unit(Volume, &["mL", "milliliter", "millilitre", "cm3"], "0.001"),
    unit(Volume, &["cL", "centiliter", "centilitre"], "0.01"),
    unit(Volume, &["dL", "deciliter", "decilitre"], "0.1"),
    unit(Volume, &["L", "liter", "litre"], "1"),
    unit(Volume, &["m3", "m³", "cubic meter", "cubic metre"], "1000"),
    unit(Volume, &["tsp", "teaspoon"], "3.785411784 / 768"),
    unit(Volume, &["tbsp", "tablespoon"], "3.785411784 / 256"),
    unit(Volume, &["fl oz", "floz", "fluid ounce"], "3.785411784 / 128"),
    unit(Volume, &["cup"], "3.785411784 / 16"),
    unit(Volume, &["pt", "pint"], "3.785411784 / 8"),
    unit(Volume, &["qt", "quart"], "3.785411784 / 4"),
    unit(Volume, &["gal", "gallon"], "3.785411784"),
    unit(Speed, &["m/s"], "1"),
    unit(Speed, &["km/h", "kmh", "kph"], "1/3.6"),
    unit(Speed, &["mph", "mi/h"], "0.44704"),
    unit(Speed, &["kn", "kt", "knot"], "1852/3600"),
    degrees(&["K", "kelvin"], "1", "0"),
    degrees(&["°C", "C", "celsius"], "1", "273.15"),
    degrees(&["°F", "F", "fahrenheit"], "5/9", "459.67"),
];

/// Why a value does not convert.
#[derive(Debug)]
pub(crate) enum ConvertError {
    Unknown(String),
    /// Only the case of the letters tells these apart.
    Ambiguous {
        name: String,
        candidates: Vec<&'static str>,
    },
    Different {
        from: &'static Unit,
        to: &'static Unit,
    },
    Value(ExpressionError),
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => {
                let symbols: Vec<&str> = UNITS.iter().map(Unit::symbol).collect();
                write!(f, "the unit `{name}` is not known; these are: {}", symbols.join(", "))
            }
            Self::Ambiguous { name, candidates } => {
                write!(f, "the unit `{name}` could be any of: {}", candidates.join(", "))
            }
            Self::Different { from, to } => write!(
                f,
                "`{}` is a unit of {} and `{}` a unit of {}; they do not convert",
                from.symbol(),
                from.dimension,
                to.symbol(),
                to.dimension
            ),
            Self::Value(error) => error.fmt(f),
        }
    }
}

impl<E: Into<ExpressionError>> From<E> for ConvertError {
    fn from(error: E) -> Self {
        Self::Value(error.into())
    }
}

/// The unit of that name. Case matters only where it must: `Mb` is a megabit and `MB` a megabyte.
pub(crate) fn find(name: &str) -> Result<&'static Unit, ConvertError> {
    let name = name.trim();
    let matching = |fits: &dyn Fn(&str) -> bool| -> Vec<&'static Unit> {
        UNITS.iter().filter(|unit| unit.names.iter().any(|known| fits(known))).collect()
    };
    let singular = name.strip_suffix(['s', 'S']).unwrap_or(name);
    let exact = matching(&|known| known == name);
    let alike = matching(&|known| known.to_lowercase() == name.to_lowercase());
    // Only words have a plural: `ms` is not two metres.
    let plural = matching(&|known| known.len() > 2 && known.eq_ignore_ascii_case(singular));
    let candidates = [exact, alike, plural].into_iter().find(|units| !units.is_empty()).unwrap_or_default();
    match candidates[..] {
        [] => Err(ConvertError::Unknown(name.to_owned())),
        [unit] => Ok(unit),
        _ => Err(ConvertError::Ambiguous {
            name: name.to_owned(),
            candidates: candidates.iter().map(|unit| unit.symbol()).collect(),
        }),
    }
}

/// The same quantity in the other unit.
pub(crate) fn convert(value: Number, from: &'static Unit, to: &'static Unit) -> Result<Number, ConvertError> {
    if from.dimension != to.dimension {
        return Err(ConvertError::Different { from, to });
    }
    let in_base = value.plus(evaluate(from.shift)?)?.times(evaluate(from.factor)?)?;
    Ok(in_base.over(evaluate(to.factor)?)?.minus(evaluate(to.shift)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn converted(value: &str, from: &str, to: &str) -> String {
        let result = (|| convert(evaluate(value)?, find(from)?, find(to)?))();
        match result {
            Ok(value) => value.decimal(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn well_known_quantities_convert() {
        for (value, from, to, expected) in [
            ("1", "mile", "km", "1.609344"),
            ("26.2", "Miles", "kilometres", "42.1648128"),
            ("5", "ft", "inches", "60"),
            ("1", "lb", "oz", "16"),
            ("70", "kg", "lb", "154.32358352941430651"),
            ("1", "week", "hours", "168"),
            ("1", "GiB", "MB", "1073.741824"),
            ("100", "Mbit", "MB", "12.5"),
            ("8", "Mb", "MB", "1"),
            ("1", "cup", "tbsp", "16"),
            ("1", "gal", "L", "3.785411784"),
            ("100", "km/h", "m/s", "27.777777777777777778"),
            ("1", "kn", "km/h", "1.852"),
            ("100", "°C", "F", "212"),
            ("-40", "F", "c", "-40"),
            ("0", "celsius", "Kelvin", "273.15"),
            ("1", "ms", "s", "0.001"),
        ] {
            assert_eq!(converted(value, from, to), expected, "{value} {from} to {to}");
        }
    }

    #[test]
    fn failed_conversions_are_reported_with_the_reason() {
        assert_eq!(converted("1", "kg", "km"), "`kg` is a unit of mass and `km` a unit of length; they do not convert");
        assert!(converted("1", "parsec", "km").starts_with("the unit `parsec` is not known; these are: nm,"));
        assert_eq!(converted("1", "mb", "B"), "the unit `mb` could be any of: Mbit, MB");
    }

    #[test]
    fn every_unit_is_found_by_all_its_names_and_converts_there_and_back() {
        let mut seen = HashSet::new();
        for unit in UNITS {
            for name in unit.names {
                assert!(seen.insert(name), "`{name}` names two units");
                assert_eq!(find(name).expect("a unit").symbol(), unit.symbol());
            }
            for other in UNITS.iter().filter(|other| other.dimension == unit.dimension) {
                let there = convert(Number::whole(7), unit, other).expect("converts");
                let back = convert(there, other, unit).expect("converts");
                assert!(back.is_exact(), "{} to {}", unit.symbol(), other.symbol());
                assert_eq!(back.to_string(), "7");
            }
        }
    }
}
