use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_random::Random;
use whatwhere_settings::Refuses;

use super::{Example, Picture, Task, symbols};
use crate::{Error, Result};

/// Pathfinder: a picture of dashed paths, pixel by pixel; are the two dots ends of one path, `y` or `n`?
/// Linsley et al. 2018, <https://arxiv.org/abs/1805.08315>; pixels as a sequence as in Long Range Arena, Tay et al. 2020, <https://arxiv.org/abs/2011.04006>.
/// Two long paths and shorter distractors wind through the picture without touching; dots mark both ends of one, or one of each.
/// Follow a line. The defaults are the size and the longest contours of Long Range Arena; `dashes = 6, distractors = 2` is a start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pathfinder {
    /// Pixels of a side, 16 to 128; default 32.
    pub size: usize,
    /// Dashes of each long path; default 14.
    pub dashes: usize,
    /// Paths of a third as many dashes that lead nowhere; default 6. Where a picture is full, it has fewer.
    pub distractors: usize,
    /// Pixels of a dash; default 2.
    pub dash: f64,
    /// Pixels between two dashes; default 1.
    pub gap: f64,
    /// The most by which a path turns between two dashes, in degrees; default 35.
    pub bend: f64,
    /// Gray levels, 2 to 16; default 16.
    pub levels: usize,
}

impl Default for Pathfinder {
    fn default() -> Self {
        Self { size: 32, dashes: 14, distractors: 6, dash: 2.0, gap: 1.0, bend: 35.0, levels: 16 }
    }
}

/// Gray levels from black to white.
const LEVELS: &str = "0123456789ABCDEF";
const ASKS: &str = "="; // closes the prompt, so that the answer is said after it
const BRIGHTNESS: f64 = 0.75; // of a path; a dot is white
const RADIUS: f64 = 1.3; // of a dot
const STEP: f64 = 0.5; // between the points that keep paths apart
const TURNS: usize = 8; // directions tried for a dash
const STARTS: usize = 40; // beginnings tried for a path
const PICTURES: usize = 400; // beginnings tried for a picture

type Point = (f64, f64);

/// One path: its dashes, and points along them and between.
#[derive(Clone, Debug, Default)]
struct Path {
    dashes: Vec<(Point, Point)>,
    points: Vec<Point>,
}

impl Path {
    fn ends(&self) -> [Point; 2] {
        let (first, last) = (self.dashes.first(), self.dashes.last());
        [first.map_or((0.0, 0.0), |dash| dash.0), last.map_or((0.0, 0.0), |dash| dash.1)]
    }
}

/// What is drawn: paths, the two that dots may stand on first, and the dots.
#[derive(Clone, Debug)]
struct Scene {
    paths: Vec<Path>,
    dots: [Point; 2],
    is_connected: bool,
}

impl Task for Pathfinder {
    fn check(&self) -> Result<()> {
        let whole = [
            ("source.size", self.size, 16, 128),
            ("source.dashes", self.dashes, 2, 1000),
            ("source.distractors", self.distractors, 0, 1000),
            ("source.levels", self.levels, 2, LEVELS.len()),
        ];
        for (setting, found, least, most) in whole {
            if !(least..=most).contains(&found) {
                let reason = format!("expected {least} to {most}");
                return Err(Error::setting(setting, found, reason));
            }
        }
        let bounds = [
            ("source.dash", self.dash, 1.0, 16.0),
            ("source.gap", self.gap, 0.5, 8.0),
            ("source.bend", self.bend, 0.0, 90.0),
        ];
        for (setting, found, least, most) in bounds {
            if !(found >= least && found <= most) {
                let reason = format!("expected {least} to {most}");
                return Err(Error::setting(setting, found, reason));
            }
        }
        // Two long paths with their distance to others must fit into a third of the picture, or chance hardly ever finds them.
        let length = self.dashes as f64 * (self.dash + self.gap);
        let most = (self.size * self.size) as f64 / 3.0 / (2.0 * self.apart());
        if length > most {
            let reason = format!(
                "two paths of {length:.0} pixels do not fit into {} × {} pixels; expected at most {}",
                self.size,
                self.size,
                (most / (self.dash + self.gap)) as usize
            );
            return Err(Error::setting("source.dashes", self.dashes, reason));
        }
        Ok(())
    }

    fn symbols(&self) -> Vec<String> {
        symbols(&format!("{}{ASKS}yn", &LEVELS[..self.levels]))
    }

    fn longest(&self) -> (usize, usize) {
        (self.size * self.size + 1, 1)
    }

    fn classes(&self) -> Option<Vec<String>> {
        Some(["n", "y"].map(String::from).into())
    }

    fn example(&self, random: &mut Random) -> Example {
        let (pixels, is_connected) = self.pixels(random);
        let level = |pixel: u8| char::from(LEVELS.as_bytes()[usize::from(pixel)]);
        let prompt = pixels.into_iter().map(level).chain(ASKS.chars()).collect();
        Example { prompt, answer: if is_connected { "y" } else { "n" }.into() }
    }

    fn picture(&self, example: &Example) -> Option<Picture> {
        let white = (self.levels - 1) as f64;
        let level = |symbol: char| LEVELS.find(symbol).map(|level| level as f64 / white);
        Some(Picture {
            width: self.size,
            pixels: example.prompt.chars().filter_map(level).collect(),
        })
    }
}

impl Pathfinder {
    /// The gray levels of a picture, row by row from the top, and its class: whether its dots are ends of one path.
    pub fn pixels(&self, random: &mut Random) -> (Vec<u8>, bool) {
        let scene = self.scene(random);
        let white = (self.levels - 1) as f64;
        let places = (0..self.size * self.size).map(|at| (at % self.size, at / self.size));
        let pixels = places.map(|(x, y)| {
            let center = (x as f64 + 0.5, y as f64 + 0.5);
            (scene.brightness(center) * white).round() as u8
        });
        (pixels.collect(), scene.is_connected)
    }

    /// How far paths keep from each other: farther than the next dash of the own one.
    fn apart(&self) -> f64 {
        self.gap + 1.5
    }

    fn scene(&self, random: &mut Random) -> Scene {
        let is_connected = random.uniform() < 0.5;
        let mut paths = self.long_paths(random);
        let ends = [paths[0].ends(), paths[1].ends()];
        for _ in 0..self.distractors {
            let dashes = (self.dashes / 3).max(2);
            paths.extend(self.path(dashes, &paths, &ends.concat(), random));
        }
        let side = random.below(2);
        let dots = match is_connected {
            true => ends[random.below(2)],
            false => [ends[0][side], ends[1][random.below(2)]],
        };
        Scene { paths, dots, is_connected }
    }

    /// The two paths that may be marked.
    fn long_paths(&self, random: &mut Random) -> Vec<Path> {
        let clear = self.apart() + RADIUS;
        // A path that finds no room in so many pictures is made shorter, so that there always is one.
        for dashes in (2..=self.dashes).rev() {
            for _ in 0..PICTURES {
                let Some(first) = self.path(dashes, &[], &[], random) else { continue };
                let ends = first.ends();
                let Some(second) = self.path(dashes, std::slice::from_ref(&first), &ends, random)
                else {
                    continue;
                };
                // The dots of the second touch nothing of the first.
                let touches = second.ends().iter().any(|end| near(*end, &first.points, clear));
                if !touches {
                    return vec![first, second];
                }
            }
        }
        let middle = self.size as f64 / 2.0;
        let straight = |y: f64| Path {
            dashes: vec![((2.0, y), (2.0 + self.dash, y))],
            points: vec![(2.0, y), (2.0 + self.dash, y)],
        };
        vec![straight(middle / 2.0), straight(middle * 1.5)]
    }

    /// A path that keeps its distance to others and to itself, and more of it to where dots may stand; nothing if there is no
    /// room for one.
    fn path(
        &self,
        dashes: usize,
        others: &[Path],
        dots: &[Point],
        random: &mut Random,
    ) -> Option<Path> {
        (0..STARTS).find_map(|_| {
            let place = |random: &mut Random| 2.0 + random.uniform() * (self.size as f64 - 4.0);
            let mut at = (place(random), place(random));
            let mut angle = random.uniform() * std::f64::consts::TAU;
            let mut path = Path::default();
            for number in 0..dashes {
                let found = (0..TURNS).find_map(|_| {
                    let turn = (2.0 * random.uniform() - 1.0) * self.bend.to_radians();
                    let angle = if number == 0 { angle } else { angle + turn };
                    let points = self.along(at, angle, number > 0);
                    let fits = points.iter().all(|point| self.is_free(*point, &path, others, dots));
                    fits.then_some((angle, points))
                });
                let (turned, points) = found?;
                angle = turned;
                let start = if number == 0 { at } else { moved(at, angle, self.gap) };
                at = moved(start, angle, self.dash);
                path.dashes.push((start, at));
                path.points.extend(points);
            }
            Some(path)
        })
    }

    /// Points of a gap, if there is one before it, and of a dash.
    fn along(&self, from: Point, angle: f64, has_gap: bool) -> Vec<Point> {
        let length = self.dash + if has_gap { self.gap } else { 0.0 };
        let count = (length / STEP).ceil() as usize;
        (1..=count).map(|i| moved(from, angle, length * i as f64 / count as f64)).collect()
    }

    fn is_free(&self, point: Point, own: &Path, others: &[Path], dots: &[Point]) -> bool {
        let inside = |x: f64| (1.5..=self.size as f64 - 1.5).contains(&x);
        let apart = self.apart();
        // Where it comes from, a path is near to itself.
        let recent = ((self.dash + self.gap + apart) / STEP).ceil() as usize;
        let older = &own.points[..own.points.len().saturating_sub(recent)];
        inside(point.0)
            && inside(point.1)
            && !near(point, older, apart)
            && !others.iter().any(|other| near(point, &other.points, apart))
            && !near(point, dots, apart + RADIUS)
    }
}

impl Scene {
    /// From 0 to 1, with soft edges.
    fn brightness(&self, at: Point) -> f64 {
        let soft = |distance: f64, radius: f64| (radius + 0.5 - distance).clamp(0.0, 1.0);
        let dashes = self.paths.iter().flat_map(|path| &path.dashes);
        let dashes = dashes.map(|dash| BRIGHTNESS * soft(to_dash(at, *dash), 0.5));
        let dots = self.dots.iter().map(|dot| soft(apart(at, *dot), RADIUS));
        dashes.chain(dots).fold(0.0, f64::max)
    }
}

fn moved((x, y): Point, angle: f64, by: f64) -> Point {
    (x + by * angle.cos(), y + by * angle.sin())
}

fn apart((a, b): Point, (c, d): Point) -> f64 {
    (a - c).hypot(b - d)
}

fn near(point: Point, others: &[Point], distance: f64) -> bool {
    // Squares: this is where the time of a picture goes.
    let square = |(x, y): Point| (x - point.0).powi(2) + (y - point.1).powi(2);
    others.iter().any(|other| square(*other) < distance * distance)
}

/// The distance from a point to a dash.
fn to_dash(at: Point, (from, to): (Point, Point)) -> f64 {
    let (x, y) = (to.0 - from.0, to.1 - from.1);
    let along =
        ((at.0 - from.0) * x + (at.1 - from.1) * y) / (x * x + y * y).max(f64::MIN_POSITIVE);
    let along = along.clamp(0.0, 1.0);
    apart(at, (from.0 + along * x, from.1 + along * y))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether dashes lead from one dot to the other, by nothing but how far dashes are from each other.
    fn leads(scene: &Scene, gap: f64) -> bool {
        let dashes: Vec<(Point, Point)> =
            scene.paths.iter().flat_map(|path| path.dashes.clone()).collect();
        let at = |dot: Point| dashes.iter().position(|dash| to_dash(dot, *dash) < 1e-6).unwrap();
        let [from, to] = scene.dots.map(at);
        let mut reached = vec![from];
        let mut next = 0;
        while next < reached.len() {
            let (a, b) = dashes[reached[next]];
            for (other, dash) in dashes.iter().enumerate() {
                let close = [a, b].iter().any(|end| {
                    [dash.0, dash.1].iter().any(|start| apart(*end, *start) < gap + 0.01)
                });
                if close && !reached.contains(&other) {
                    reached.push(other);
                }
            }
            next += 1;
        }
        reached.contains(&to)
    }

    fn tasks() -> Vec<Pathfinder> {
        let default = Pathfinder::default();
        vec![
            default.clone(),
            Pathfinder { dashes: 6, distractors: 2, ..default.clone() },
            Pathfinder { dashes: 9, distractors: 3, gap: 2.0, bend: 60.0, ..default.clone() },
            Pathfinder { size: 64, dashes: 20, distractors: 10, dash: 4.0, ..default },
        ]
    }

    #[test]
    fn the_answer_is_whether_dashes_lead_from_dot_to_dot() {
        for task in tasks() {
            task.check().unwrap();
            let mut connected = 0;
            for i in 0..300 {
                let scene = task.scene(&mut Random::new(&[i]));
                assert_eq!(leads(&scene, task.gap), scene.is_connected, "{task:?} {i}");
                connected += usize::from(scene.is_connected);
                for path in &scene.paths[..2] {
                    assert_eq!(path.dashes.len(), task.dashes, "{task:?} {i}");
                }
            }
            assert!((120..180).contains(&connected), "{task:?}: {connected} of 300");
        }
    }

    #[test]
    fn paths_keep_apart_and_dots_touch_no_other_path() {
        for task in tasks() {
            let mut distractors = 0;
            for i in 0..60 {
                let scene = task.scene(&mut Random::new(&[7, i]));
                distractors += scene.paths.len() - 2;
                for (a, path) in scene.paths.iter().enumerate() {
                    for other in &scene.paths[..a] {
                        let close =
                            |point: &Point| near(*point, &other.points, task.apart() - 1e-9);
                        assert!(!path.points.iter().any(close), "{task:?} {i}");
                    }
                    for dot in scene.dots {
                        let own = path.ends().contains(&dot);
                        assert!(own || !near(dot, &path.points, task.apart()), "{task:?} {i}");
                    }
                }
            }
            assert!(distractors * 10 >= 60 * task.distractors * 7, "{task:?}: {distractors}");
        }
    }

    #[test]
    fn examples_follow_from_the_generator_and_pictures_from_examples() {
        let task = Pathfinder::default();
        let made = |seed| task.example(&mut Random::new(&[seed]));
        assert_eq!(made(3), made(3));
        assert_ne!(made(3), made(4));
        let Example { prompt, answer } = made(5);
        assert_eq!((prompt.len(), answer.len()), (32 * 32 + 1, 1));
        let (pixels, is_connected) = task.pixels(&mut Random::new(&[5]));
        assert_eq!(answer == "y", is_connected);
        let picture = task.picture(&made(5)).unwrap();
        assert_eq!((picture.width, picture.pixels.len()), (32, 32 * 32));
        for (pixel, shown) in pixels.iter().zip(&picture.pixels) {
            assert!((f64::from(*pixel) / 15.0 - shown).abs() < 1e-9);
        }
        // Two dots are white, paths are gray, most of it is black.
        let white = pixels.iter().filter(|pixel| **pixel > 12).count();
        assert!((2..20).contains(&white), "{white}");
        assert!(pixels.iter().filter(|pixel| **pixel == 0).count() > 400);
    }

    #[test]
    fn settings_without_a_picture_are_refused() {
        let refusal = |task: Pathfinder| task.check().unwrap_err().to_string();
        let default = Pathfinder::default;
        assert_eq!(
            refusal(Pathfinder { levels: 1, ..default() }),
            "source.levels = 1: expected 2 to 16"
        );
        let message = refusal(Pathfinder { dashes: 40, ..default() });
        assert!(message.contains("two paths of 120 pixels do not fit into 32 × 32"), "{message}");
        assert!(refusal(Pathfinder { gap: f64::NAN, ..default() }).contains("source.gap = NaN"));
    }
}
