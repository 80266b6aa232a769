//! The shortest way through a maze, from cell to cell.

use crate::generate::Cell;
use crate::maze::{Direction, Maze};

/// Finds ways. It keeps its memory, so that looking again and again costs none.
#[derive(Clone, Debug)]
pub(crate) struct PathFinder {
    /// No more cells than this are looked at.
    max_cells: usize,
    /// By which direction each cell was entered first.
    entry_directions: Vec<Option<Direction>>,
    /// Cells in the order of their distance.
    visited: Vec<Cell>,
    route: Vec<Cell>,
}

impl PathFinder {
    pub(crate) fn new(most: usize) -> Self {
        Self { max_cells: most, entry_directions: Vec::new(), visited: Vec::new(), route: Vec::new() }
    }

    /// The cells on the shortest way, without the first. If that is too far to look, the way to the cell nearest to the goal
    /// as the crow flies.
    pub(crate) fn find(&mut self, maze: &Maze, from: Cell, to: Cell) -> &[Cell] {
        self.route.clear();
        if !has_cell(maze, from) || !has_cell(maze, to) {
            return &self.route;
        }
        let reached = self.search(maze, from, to);
        self.backtrack(maze, from, reached);
        &self.route
    }

    /// Looks at cells by and by, until the goal is among them.
    fn search(&mut self, maze: &Maze, from: Cell, to: Cell) -> Cell {
        let side = usize::from(maze.cells_per_side());
        self.entry_directions.clear();
        self.entry_directions.resize(side * side, None);
        self.visited.clear();
        self.visited.push(from);
        let mut looked = 0;
        while looked < self.visited.len().min(self.max_cells) {
            let here = self.visited[looked];
            if here == to {
                return to;
            }
            self.expand(maze, from, here);
            looked += 1;
        }
        let gap = |cell: &Cell| (cell.0 - to.0).pow(2) + (cell.1 - to.1).pow(2);
        self.visited.iter().copied().min_by_key(gap).unwrap_or(from)
    }

    fn expand(&mut self, maze: &Maze, from: Cell, here: Cell) {
        for direction in Direction::ALL {
            let there = direction.neighbour(here);
            if !maze.has_wall(here, direction) && there != from && self.entry_directions[index(maze, there)].is_none() {
                self.entry_directions[index(maze, there)] = Some(direction);
                self.visited.push(there);
            }
        }
    }

    /// Goes back from where we got to, and turns that round.
    fn backtrack(&mut self, maze: &Maze, from: Cell, reached: Cell) {
        let mut here = reached;
        while here != from {
            self.route.push(here);
            let Some(direction) = self.entry_directions[index(maze, here)] else { break };
            let (east, south) = direction.offset();
            here = (here.0 - east, here.1 - south);
        }
        self.route.reverse();
    }
}

fn has_cell(maze: &Maze, (x, y): Cell) -> bool {
    let inside = 0..i32::from(maze.cells_per_side());
    inside.contains(&x) && inside.contains(&y)
}

fn index(maze: &Maze, (x, y): Cell) -> usize {
    y as usize * usize::from(maze.cells_per_side()) + x as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distances by a slower way: rounds of relaxation until nothing changes.
    fn reference_distances(maze: &Maze, from: Cell) -> Vec<usize> {
        let side = i32::from(maze.cells_per_side());
        let mut distances = vec![usize::MAX; (side * side) as usize];
        distances[index(maze, from)] = 0;
        loop {
            let before = distances.clone();
            for at in 0..side * side {
                let here = (at % side, at / side);
                for direction in Direction::ALL.into_iter().filter(|way| !maze.has_wall(here, *way)) {
                    let over_there = distances[index(maze, direction.neighbour(here))].saturating_add(1);
                    let own = &mut distances[at as usize];
                    *own = (*own).min(over_there);
                }
            }
            if distances == before {
                return distances;
            }
        }
    }

    #[test]
    fn paths_are_shortest_and_pass_no_wall() {
        let maze = Maze::new(5, 16);
        let mut way = PathFinder::new(usize::MAX);
        for from in [(0, 0), (7, 9), (15, 3)] {
            let distances = reference_distances(&maze, from);
            for at in 0..256 {
                let route = way.find(&maze, from, (at % 16, at / 16));
                assert_eq!(route.len(), distances[at as usize]);
                let mut here = from;
                for next in route {
                    let open = |way: &Direction| way.neighbour(here) == *next && !maze.has_wall(here, *way);
                    assert!(Direction::ALL.iter().any(open), "from {here:?} to {next:?}");
                    here = *next;
                }
            }
        }
    }

    #[test]
    fn distant_goal_yields_a_path_towards_it() {
        let maze = Maze::new(5, 128);
        let mut way = PathFinder::new(500);
        let route = way.find(&maze, (0, 0), (127, 127));
        let (x, y) = *route.last().expect("there is somewhere to go");
        assert!(x + y > 10 && route.len() < 500);
        assert!(way.find(&maze, (-1, 0), (3, 3)).is_empty(), "nobody is outside");
    }
}
