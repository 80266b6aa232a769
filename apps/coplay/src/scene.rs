//! Scenes that a front end shows, and commands that it returns. A game draws a [`Scene`] per frame and knows nothing of
//! windows or terminals. A front end shows the newest scene and knows nothing of games.

use coplay_machines::Picture;

/// Content of the screen.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// Pictures, one or two.
    pub screens: Vec<Screen>,
    /// Status line under the pictures.
    pub status: String,
    /// Small table in a corner of the pictures.
    pub table: Vec<TableRow>,
    /// Header above the values of the table; empty for no header.
    pub table_header: &'static str,
    /// Graph under the pictures.
    pub graph: Option<Graph>,
    /// Sliders that change settings while the game runs.
    pub dials: Vec<Dial>,
    /// Index of the dial that keys turn.
    pub selected_dial: usize,
    /// Short message that disappears by itself.
    pub toast: Option<String>,
    /// Recent chat lines, over the pictures.
    pub chat: Vec<String>,
    /// Chat message that is being typed. While it is `Some`, keys type letters and press no buttons.
    pub chat_draft: Option<String>,
    /// Text that the user can copy to the clipboard.
    pub clipboard_text: Option<String>,
    /// Whether [`UiCommand::Quit`] asks for confirmation first.
    pub needs_quit_confirmation: bool,
    /// Text over the pictures, such as a menu.
    pub overlay: Option<Overlay>,
    /// Number of this scene, from 1.
    pub sequence: u64,
}

/// Picture of a machine.
#[derive(Clone, Debug, Default)]
pub struct Screen {
    /// Caption; empty if there is only one picture.
    pub caption: String,
    /// Pixels per row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Aspect ratio on the screen: width divided by height.
    pub aspect: f32,
    /// Red, green, blue and 255, for every pixel.
    pub rgba: Vec<u8>,
    /// Whether the picture is smoothed and scaled by any factor, so that single pixels are not visible.
    pub is_smooth: bool,
    /// Labels on the picture. Front ends draw them with their own font, so they are readable on a small picture.
    pub labels: Vec<Label>,
}

/// Label on a picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Label {
    /// Text.
    pub text: String,
    /// Horizontal centre, as a fraction of the picture's width.
    pub x: f32,
    /// Lower edge, as a fraction of the picture's height.
    pub y: f32,
    /// Colour.
    pub colour: [u8; 3],
}

/// Row of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableRow {
    /// Name.
    pub name: String,
    /// Value.
    pub value: String,
    /// Colour of the row's mark.
    pub colour: [u8; 3],
    /// Whether the row is about the local player.
    pub is_own: bool,
}

/// Graph of time series in the same axes.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Lines, one per series.
    pub lines: Vec<GraphLine>,
}

/// Line of a graph.
#[derive(Clone, Debug, Default)]
pub struct GraphLine {
    /// Name of the series.
    pub name: String,
    /// Current value, with its unit.
    pub current: String,
    /// Top of the axis; larger values are clipped to it.
    pub axis_max: f32,
    /// Values, the newest last.
    pub values: Vec<f32>,
    /// Number of values at full width.
    pub capacity: usize,
}

/// On-screen control of a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Dial {
    /// Name.
    pub name: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// Current value.
    pub value: u32,
    /// Largest value. The smallest is 0.
    pub max: u32,
    /// Change per key press.
    pub step: u32,
}

/// Text over the pictures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// Title, in large letters.
    pub title: String,
    /// Rows, each with a left and a right text.
    pub rows: Vec<(String, String)>,
    /// Index of the selected row, if rows can be selected.
    pub selected: Option<usize>,
    /// Footer, in small letters.
    pub footer: String,
}

/// Characters of a ticket per line, so that it fits into a terminal of 80 columns.
pub const MAX_LINE_WIDTH: usize = 58;

/// Splits a text into rows of [`MAX_LINE_WIDTH`]; the first row has the name.
pub fn wrap_rows(name: &str, text: &str) -> Vec<(String, String)> {
    let chars: Vec<char> = text.chars().collect();
    let names = std::iter::once(name).chain(std::iter::repeat(""));
    names.zip(chars.chunks(MAX_LINE_WIDTH)).map(|(name, line)| (name.into(), line.iter().collect())).collect()
}

/// Command of the user to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UiCommand {
    /// Quits. In a shared game with other players, the game asks for confirmation first.
    Quit,
    /// Quits without confirmation: the front end is gone, or a signal asked the program to end.
    Exit,
    /// Opens the menu and pauses, or closes it.
    Menu,
    /// Pauses or resumes.
    Pause,
    /// Shows or hides the keys.
    Help,
    /// Starts fast-forward (`true`, key pressed) or ends it (`false`, key released).
    FastForward(bool),
    /// Saves the state in the selected slot.
    Save,
    /// Loads the state of the selected slot.
    Load,
    /// Selects another slot, by this offset.
    Slot(i8),
    /// Resets the machine.
    Reset,
    /// Turns sound on or off.
    Mute,
    /// Increases the volume or the selected dial.
    Increase,
    /// Decreases the volume or the selected dial.
    Decrease,
    /// Selects another dial, by this offset.
    SelectDial(i8),
    /// Sets a dial.
    SetDial {
        /// Index of the dial.
        dial: usize,
        /// New value.
        value: u32,
    },
    /// Shows or hides the network graph.
    Graph,
    /// Starts a chat message.
    Chat,
    /// Plays on alone, without the silent others.
    GoOnAlone,
    /// Adds a character to the chat message.
    TypeChar(char),
    /// Removes the last character of the chat message.
    EraseChar,
    /// Moves in the menu.
    Move(MenuMove),
    /// Switches between full screen and a window. Front ends handle it themselves.
    Fullscreen,
}

/// Move in a menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MenuMove {
    /// To the row above.
    Up,
    /// To the row below.
    Down,
    /// Decreases the value of the row.
    Left,
    /// Increases the value of the row.
    Right,
    /// Activates the row.
    Enter,
}

impl Screen {
    /// Copies a picture. A picture of the same size as the last one needs no allocation.
    pub fn show(&mut self, picture: Picture<'_>) {
        (self.width, self.height, self.aspect) = (picture.width, picture.height, picture.aspect);
        self.rgba.clear();
        self.rgba.extend_from_slice(picture.rgba);
        // A picture with too few bytes would be read beyond its end.
        self.rgba.resize(self.width * self.height * 4, 255);
    }

    /// Returns the colour of a pixel; black outside of the picture.
    pub fn pixel(&self, x: usize, y: usize) -> [u8; 3] {
        let start = (y * self.width + x) * 4;
        match self.rgba.get(start..start + 3) {
            Some(rgb) if x < self.width => [rgb[0], rgb[1], rgb[2]],
            _ => [0; 3],
        }
    }
}

impl Scene {
    /// Sets the number of pictures, and returns them.
    pub fn screens(&mut self, count: usize) -> &mut [Screen] {
        self.screens.resize_with(count, Screen::default);
        &mut self.screens
    }
}

impl Dial {
    /// Returns the value after one step up or down.
    pub fn stepped(&self, up: bool) -> u32 {
        match up {
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
