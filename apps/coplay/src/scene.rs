//! What a front end shows, and what comes back from it. A game makes a [`Scene`] per frame and knows nothing of windows or terminals;
//! a front end draws whatever scene is newest and knows nothing of games.

use coplay_machines::Picture;

/// Everything to be seen at one moment.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// The pictures, one or two of them.
    pub screens: Vec<Screen>,
    /// A line under the pictures: speed, slot, what is recorded.
    pub status: String,
    /// A small table in a corner of the pictures.
    pub table: Vec<TableRow>,
    /// What the values in it are, in a small line above them; nothing is written where that is clear.
    pub table_header: &'static str,
    /// Numbers over time, under the pictures.
    pub graph: Option<Graph>,
    /// What can be turned while it runs.
    pub dials: Vec<Dial>,
    /// The dial that keys turn.
    pub selected_dial: usize,
    /// What was just done, for a moment.
    pub toast: Option<String>,
    /// What people said of late, over the pictures.
    pub chat: Vec<String>,
    /// What is being typed; as long as there is something, keys are letters and play nothing.
    pub chat_draft: Option<String>,
    /// What can be copied now.
    pub clipboard_text: Option<String>,
    /// Whether [`UiCommand::Quit`] would ask first.
    pub needs_quit_confirmation: bool,
    /// What lies over the pictures.
    pub overlay: Option<Overlay>,
    /// Counts the scenes that were shown.
    pub sequence: u64,
}

/// A picture of a machine.
#[derive(Clone, Debug, Default)]
pub struct Screen {
    /// Whose it is; nothing is written where there is only one.
    pub caption: String,
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Width divided by height as it is meant to be seen.
    pub aspect: f32,
    /// Red, green, blue and 255 of every pixel.
    pub rgba: Vec<u8>,
    /// Whether its pixels are not meant to be seen: then it grows as far as there is room, and is smoothed.
    pub is_smooth: bool,
    /// What is written on it. Front ends write with letters of their own, so it can be read however small the picture is.
    pub labels: Vec<Label>,
}

/// A word on a picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Label {
    /// The word.
    pub text: String,
    /// Its middle, as a part of the picture's width.
    pub x: f32,
    /// Its lower edge, as a part of the picture's height.
    pub y: f32,
    /// Its colour.
    pub colour: [u8; 3],
}

/// A row of a small table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableRow {
    /// Who or what it is about.
    pub name: String,
    /// What there is to say.
    pub value: String,
    /// The colour of its mark.
    pub colour: [u8; 3],
    /// Whether it is about who looks.
    pub is_own: bool,
}

/// Some numbers over time, in the same axes.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// One line each.
    pub lines: Vec<GraphLine>,
}

/// A number over time.
#[derive(Clone, Debug, Default)]
pub struct GraphLine {
    /// What it is.
    pub name: String,
    /// The number as it is now, with its unit.
    pub current: String,
    /// The top of the axis: larger numbers touch it.
    pub axis_max: f32,
    /// The numbers, the newest last.
    pub values: Vec<f32>,
    /// How many of them there is room for.
    pub capacity: usize,
}

/// Something to turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Dial {
    /// What it is.
    pub name: &'static str,
    /// What it counts.
    pub unit: &'static str,
    /// Where it stands.
    pub value: u32,
    /// How far it goes.
    pub max: u32,
    /// How far one press turns it.
    pub step: u32,
}

/// Text over the pictures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// In large.
    pub title: String,
    /// Rows, each a text on the left and one on the right.
    pub rows: Vec<(String, String)>,
    /// The row that is chosen, where rows can be.
    pub selected: Option<usize>,
    /// In small, at the end.
    pub footer: String,
}

/// So much of a ticket fits into a line, also in a small terminal.
pub const MAX_LINE_WIDTH: usize = 58;

/// A text in lines that fit, the first of which has a name.
pub fn wrap_rows(name: &str, text: &str) -> Vec<(String, String)> {
    let signs: Vec<char> = text.chars().collect();
    let names = std::iter::once(name).chain(std::iter::repeat(""));
    names.zip(signs.chunks(MAX_LINE_WIDTH)).map(|(name, line)| (name.into(), line.iter().collect())).collect()
}

/// What a person wants, apart from playing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UiCommand {
    /// To end. Where others would be left alone, the game asks first.
    Quit,
    /// To end without a question: nobody is there to answer it, or a signal asks for it.
    Exit,
    /// To stand still, with a menu, or to go on.
    Menu,
    /// To stand still, or to go on.
    Pause,
    /// The keys.
    Help,
    /// To go faster for as long as it is held.
    FastForward(bool),
    /// To keep the state in the chosen slot.
    Save,
    /// To go back to what is in the chosen slot.
    Load,
    /// Another slot: so many further.
    Slot(i8),
    /// The machine switched off and on.
    Reset,
    /// Sound on or off.
    Mute,
    /// Louder, or more of the chosen dial.
    Increase,
    /// Less loud, or less of the chosen dial.
    Decrease,
    /// Another dial: so many further.
    SelectDial(i8),
    /// A dial turned to a place.
    SetDial {
        /// Which.
        dial: usize,
        /// To where.
        value: u32,
    },
    /// To see how the network does, or not any more.
    Graph,
    /// To say something to the others.
    Chat,
    /// To play on alone, without the others, who are silent.
    GoOnAlone,
    /// A letter of what is said.
    TypeChar(char),
    /// Without the last letter.
    EraseChar,
    /// A move in the menu.
    Move(MenuMove),
    /// The whole screen or a window; front ends do that themselves.
    Fullscreen,
}

/// A move in a menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MenuMove {
    /// To the row above.
    Up,
    /// To the row below.
    Down,
    /// Less of it.
    Left,
    /// More of it.
    Right,
    /// Do it.
    Enter,
}

impl Screen {
    /// Takes over a picture; nothing is allocated when it is as large as the one before.
    pub fn show(&mut self, picture: Picture<'_>) {
        (self.width, self.height, self.aspect) = (picture.width, picture.height, picture.aspect);
        self.rgba.clear();
        self.rgba.extend_from_slice(picture.rgba);
        // A picture that is shorter than it says would be drawn from beyond its end.
        self.rgba.resize(self.width * self.height * 4, 255);
    }

    /// The colour of a pixel; black outside.
    pub fn pixel(&self, x: usize, y: usize) -> [u8; 3] {
        let at = (y * self.width + x) * 4;
        match self.rgba.get(at..at + 3) {
            Some(rgb) if x < self.width => [rgb[0], rgb[1], rgb[2]],
            _ => [0; 3],
        }
    }
}

impl Scene {
    /// Makes room for so many pictures.
    pub fn screens(&mut self, count: usize) -> &mut [Screen] {
        self.screens.resize_with(count, Screen::default);
        &mut self.screens
    }
}

impl Dial {
    /// Where it stands after a press of more or less.
    pub fn stepped(&self, more: bool) -> u32 {
        match more {
            true => self.value.saturating_add(self.step).min(self.max),
            false => self.value.saturating_sub(self.step),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_picture_is_padded() {
        let mut screen = Screen::default();
        screen.show(Picture { width: 2, height: 2, aspect: 1.0, rgba: &[9; 12] });
        assert_eq!((screen.pixel(0, 0), screen.pixel(1, 1), screen.pixel(2, 0)), ([9; 3], [255; 3], [0; 3]));
    }

    #[test]
    fn dial_is_clamped_to_its_range() {
        let dial = Dial { name: "loss", unit: "%", value: 19, max: 20, step: 5 };
        assert_eq!((dial.stepped(true), dial.stepped(false)), (20, 14));
        assert_eq!(Dial { value: 3, ..dial }.stepped(false), 0);
    }
}
