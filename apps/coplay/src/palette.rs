//! Colours as red, green and blue, the same in a window and in a terminal.

/// Background behind pictures and panels.
pub const BACKGROUND: [u8; 3] = [13, 14, 20];
/// Background of text panels.
pub const PANEL: [u8; 3] = [26, 28, 38];
/// Border around panels.
pub const BORDER: [u8; 3] = [52, 56, 74];
/// Normal text, such as rows of panels.
pub const TEXT: [u8; 3] = [226, 228, 236];
/// Secondary text, such as the status line and footers.
pub const DIM_TEXT: [u8; 3] = [138, 143, 160];
/// Highlight of the selected item, of titles and of toasts.
pub const ACCENT: [u8; 3] = [255, 190, 92];
/// Colours of the lines of a graph, in their order.
pub const GRAPH_COLOURS: [[u8; 3]; 4] = [[98, 181, 255], [255, 190, 92], [255, 118, 118], [130, 220, 150]];
