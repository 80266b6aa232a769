//! Colours, the same in a window and in a terminal.

/// Background of the screen.
pub const BACKGROUND: [u8; 3] = [13, 14, 20];
/// Background of text panels.
pub const PANEL: [u8; 3] = [26, 28, 38];
/// Border of panels.
pub const BORDER: [u8; 3] = [52, 56, 74];
/// Text.
pub const TEXT: [u8; 3] = [226, 228, 236];
/// Text of less importance.
pub const DIM_TEXT: [u8; 3] = [138, 143, 160];
/// Selected item.
pub const ACCENT: [u8; 3] = [255, 190, 92];
/// Lines of a graph.
pub const GRAPH_COLOURS: [[u8; 3]; 4] = [[98, 181, 255], [255, 190, 92], [255, 118, 118], [130, 220, 150]];
