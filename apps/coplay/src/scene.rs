//! Scenes that a front end shows, and commands that it returns. A game draws a [`Scene`] per frame and knows nothing of
//! windows or terminals. A front end shows the newest scene and knows nothing of games.

use coplay_machines::Picture;

/// Content of one frame of the user interface.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// Pictures of the game, at most two; empty before the first frame.
    pub screens: Vec<Screen>,
    /// Status line under the pictures.
    pub status: String,
    /// Rows of a small table in a corner of the pictures, such as scores.
    pub table: Vec<TableRow>,
    /// Header above the values of the table; empty for no header.
    pub table_header: &'static str,
    /// Graph under the pictures; `None` hides it.
    pub graph: Option<Graph>,
    /// Sliders that change settings while the game runs.
    pub dials: Vec<Dial>,
    /// Index in `dials` of the dial that keys change.
    pub selected_dial: usize,
    /// Short message that the game removes after a while; `None` shows none.
    pub toast: Option<String>,
    /// Recent chat lines, drawn over the pictures.
    pub chat: Vec<String>,
    /// Chat message that is being typed. While it is `Some`, keys type letters and press no buttons.
    pub chat_draft: Option<String>,
    /// Text that Ctrl+C copies to the clipboard in a window, such as a ticket; `None` for no text.
    pub clipboard_text: Option<String>,
    /// Whether the game answers [`UiCommand::Quit`] with the question whether to quit; `false` also while it shows that
    /// question.
    pub needs_quit_confirmation: bool,
    /// Panel over the pictures, such as a menu; `None` shows none.
    pub overlay: Option<Overlay>,
    /// Number of this scene, from 1; [`GamePort::show`](crate::GamePort::show) sets it.
    pub sequence: u64,
}

/// Picture of a machine or of a renderer, with its labels.
#[derive(Clone, Debug, Default)]
pub struct Screen {
    /// Text above the picture; empty if there is only one picture.
    pub caption: String,
    /// Width of the picture, in pixels.
    pub width: usize,
    /// Height of the picture, in pixels.
    pub height: usize,
    /// Aspect ratio on the screen: width divided by height.
    pub aspect: f32,
    /// Pixels row by row from the top: red, green, blue and 255.
    pub rgba: Vec<u8>,
    /// Whether the picture is smoothed and scaled by any factor, so that single pixels are not visible.
    pub is_smooth: bool,
    /// Labels on the picture. Front ends draw them with their own font, so they are readable on a small picture.
    pub labels: Vec<Label>,
}

/// Text at a position on a picture, such as a player's name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Label {
    /// Text to draw.
    pub text: String,
    /// Horizontal centre, as a fraction of the picture's width.
    pub x: f32,
    /// Lower edge, as a fraction of the picture's height.
    pub y: f32,
    /// Colour of the text: red, green, blue.
    pub colour: [u8; 3],
}

/// Row of the table in the corner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableRow {
    /// Text on the left, such as the name of a player.
    pub name: String,
    /// Text on the right, such as the player's score.
    pub value: String,
    /// Colour of the mark before the name: red, green, blue.
    pub colour: [u8; 3],
    /// Whether the row is about the local player, and is highlighted.
    pub is_own: bool,
}

/// Time series that are drawn side by side, each with an axis of its own.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Time series, in the order in which they are drawn.
    pub lines: Vec<GraphLine>,
}

/// One time series of a graph.
#[derive(Clone, Debug, Default)]
pub struct GraphLine {
    /// Name of the series, for the legend.
    pub name: String,
    /// Newest value as text, with its unit.
    pub current: String,
    /// Value at the top of the axis, whose bottom is 0. Larger values are clipped to it.
    pub axis_max: f32,
    /// Values of the series, the newest last.
    pub values: Vec<f32>,
    /// Number of values that fill the width of the graph.
    pub capacity: usize,
}

/// Slider on the screen that sets a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Dial {
    /// Name of the setting, shown with the slider.
    pub name: &'static str,
    /// Unit of the value, shown after it.
    pub unit: &'static str,
    /// Value that the slider shows.
    pub value: u32,
    /// Largest value of the slider. The smallest is 0.
    pub max: u32,
    /// Change of the value per key press.
    pub step: u32,
}

/// Panel with rows of text over the pictures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// Title of the panel, in large letters.
    pub title: String,
    /// Rows of the panel, each with a left and a right text.
    pub rows: Vec<(String, String)>,
    /// Index of the highlighted row; `None` if rows cannot be selected.
    pub selected: Option<usize>,
    /// Last line of the panel, in small letters.
    pub footer: String,
}

/// Largest number of characters per line of long text such as a ticket, so that it fits into a terminal of 80 columns.
pub const MAX_LINE_WIDTH: usize = 58;

/// Splits a text into rows of at most [`MAX_LINE_WIDTH`] characters; only the first row has the name.
pub fn wrap_rows(name: &str, text: &str) -> Vec<(String, String)> {
    let chars: Vec<char> = text.chars().collect();
    let names = std::iter::once(name).chain(std::iter::repeat(""));
    names.zip(chars.chunks(MAX_LINE_WIDTH)).map(|(name, line)| (name.into(), line.iter().collect())).collect()
}

/// Returns the part of a panel's footer that names a key and its effect; empty without a key.
pub(crate) fn key_hint(key: &str, effect: &str) -> String {
    if key.is_empty() { String::new() } else { format!("{key} {effect}") }
}

/// Joins the parts of a panel's footer that are not empty.
pub(crate) fn join_footer(parts: &[String]) -> String {
    parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join("   ")
}

/// Command of the user, from a front end to the game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UiCommand {
    /// Quits. A player who shares the game with others must confirm it.
    Quit,
    /// Quits without confirmation: the front end is gone, or a signal asked the program to end.
    Exit,
    /// Opens the menu, which pauses a local game, or closes what is open: a panel, the chat message or the question
    /// whether to quit.
    Menu,
    /// Pauses or resumes the game.
    Pause,
    /// Shows or hides the help panel with the keys.
    Help,
    /// Starts fast-forward (`true`, key pressed) or ends it (`false`, key released).
    FastForward(bool),
    /// Saves the state in the selected slot; in a shared game, saves the state for all players.
    Save,
    /// Loads the state in the selected slot; in a shared game, loads the last saved state for all players.
    Load,
    /// Selects the slot at this offset from the selected one.
    Slot(i8),
    /// Resets the machine.
    Reset,
    /// Turns sound on or off.
    Mute,
    /// Increases the volume or the selected dial.
    Increase,
    /// Decreases the volume or the selected dial.
    Decrease,
    /// Selects the dial at this offset from the selected one.
    SelectDial(i8),
    /// Sets a dial to a value, as by a click.
    SetDial {
        /// Index of the dial in [`Scene::dials`].
        dial: usize,
        /// New value of the dial.
        value: u32,
    },
    /// Shows or hides the network graph.
    Graph,
    /// Starts to type a chat message.
    Chat,
    /// Continues the shared game alone, without the silent players.
    GoOnAlone,
    /// Adds a character to the chat message.
    TypeChar(char),
    /// Removes the last character of the chat message.
    EraseChar,
    /// Moves in the open menu. `Enter` also sends the typed chat message, and starts a shared game from its lobby.
    Move(MenuMove),
    /// Switches between full screen and a window. Front ends handle it themselves.
    Fullscreen,
}

/// Movement in an open menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MenuMove {
    /// Selects the row above.
    Up,
    /// Selects the row below.
    Down,
    /// Decreases the value of the selected row.
    Left,
    /// Increases the value of the selected row.
    Right,
    /// Activates the selected row.
    Enter,
}

impl Screen {
    /// Copies a picture into this screen. A picture of the same size as the last one needs no allocation.
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
    /// Sets the number of pictures to `count`, and returns them with their former contents.
    pub fn screens(&mut self, count: usize) -> &mut [Screen] {
        self.screens.resize_with(count, Screen::default);
        &mut self.screens
    }
}

impl Dial {
    /// Returns the value after one step up or down, from 0 to `max`.
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
