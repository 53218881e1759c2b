//! Cost of a sample against depth as a picture: both axes logarithmic, a line for each way.

use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
/// Room for the words.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 96.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 44.0;
const COLORS: [&str; 3] = ["#b02020", "#1f6f3f", "#1f4f9f"];

/// One line: its name, and points of depth and microseconds.
pub struct Line {
    pub name: &'static str,
    pub points: Vec<(f64, f64)>,
}

/// The picture as SVG. `title` stands above it.
pub fn svg(title: &str, lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|line| &line.points);
    let decades = |values: &mut dyn Iterator<Item = f64>| {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        (low.max(1e-3).log10().floor(), high.max(1e-2).log10().ceil())
    };
    let across = decades(&mut all().map(|point| point.0));
    let up = decades(&mut all().map(|point| point.1));
    let x = |depth: f64| LEFT + (WIDTH - LEFT - RIGHT) * (depth.log10() - across.0) / (across.1 - across.0).max(1.0);
    let y =
        |us: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (us.max(1e-3).log10() - up.0) / (up.1 - up.0).max(1.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"16\">{title}</text>\n"
    );
    let mut put = |text: std::fmt::Arguments<'_>| svg.write_fmt(text).expect("a string takes all");
    for decade in across.0 as i32..=across.1 as i32 {
        let (value, at) = (10f64.powi(decade), x(10f64.powi(decade)));
        let (top, bottom, below) = (TOP, HEIGHT - BOTTOM, HEIGHT - BOTTOM + 16.0);
        put(format_args!("<path d=\"M{at:.1} {top}V{bottom}\" stroke=\"#dddddd\"/>\n"));
        put(format_args!("<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{value}</text>\n"));
    }
    for decade in up.0 as i32..=up.1 as i32 {
        let (value, at) = (10f64.powi(decade), y(10f64.powi(decade)));
        let (right, beside, lower) = (WIDTH - RIGHT, LEFT - 6.0, at + 4.0);
        put(format_args!("<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#dddddd\"/>\n"));
        put(format_args!("<text x=\"{beside}\" y=\"{lower:.1}\" text-anchor=\"end\">{value}</text>\n"));
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    put(format_args!("<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">frames</text>\n", HEIGHT - 8.0));
    for (line, color) in lines.iter().zip(COLORS.iter().cycle()) {
        let points: Vec<String> =
            line.points.iter().map(|(depth, us)| format!("{:.1},{:.1}", x(*depth), y(*us))).collect();
        put(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>\n",
            points.join(" ")
        ));
        if let Some((depth, us)) = line.points.last() {
            let (beside, lower) = (x(*depth) + 6.0, y(*us) + 4.0);
            put(format_args!("<text x=\"{beside:.1}\" y=\"{lower:.1}\" fill=\"{color}\">{}</text>\n", line.name));
        }
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greater_is_further_right_and_higher() {
        let line = |name, points: &[(f64, f64)]| Line { name, points: points.to_vec() };
        let svg = svg("us", &[line("flat", &[(10.0, 5.0), (1e5, 5.0)]), line("steep", &[(10.0, 5.0), (1e5, 500.0)])]);
        let points = |nth: usize| -> Vec<f64> {
            let list = svg.split("points=\"").nth(nth).and_then(|rest| rest.split('"').next()).expect("a line");
            list.split([',', ' ']).map(|number| number.parse().expect("a number")).collect()
        };
        let (flat, steep) = (points(1), points(2));
        assert!(flat[0] < flat[2] && (flat[1] - flat[3]).abs() < 1e-9, "{flat:?}");
        assert!(steep[0] < steep[2] && steep[3] < steep[1], "{steep:?}");
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
    }
}
