//! Shortest paths through a maze, from cell to cell (breadth-first search).

use crate::direction::Direction;
use crate::direction::MazeCell;
use crate::maze::Maze;

/// Breadth-first search that reuses its buffers, so that repeated searches do not allocate.
#[derive(Clone, Debug)]
pub(crate) struct PathFinder {
    /// Largest number of cells that a search expands.
    max_cells: usize,
    /// Direction of the step by which the search first entered each cell; `None` for unvisited cells and the start.
    entry_directions: Vec<Option<Direction>>,
    /// Visited cells, by increasing distance from the start.
    visited: Vec<MazeCell>,
    route: Vec<MazeCell>,
}

impl PathFinder {
    pub(crate) fn new(max_cells: usize) -> Self {
        Self { max_cells, entry_directions: Vec::new(), visited: Vec::new(), route: Vec::new() }
    }

    /// Returns the cells of the shortest path from `from` to `to`, without `from` itself. If the search does not reach
    /// `to`, the path leads to the visited cell that is nearest to `to` in a straight line. The path is empty if either
    /// cell is outside the maze.
    pub(crate) fn find(&mut self, maze: &Maze, from: MazeCell, to: MazeCell) -> &[MazeCell] {
        self.route.clear();
        if !has_cell(maze, from) || !has_cell(maze, to) {
            return &self.route;
        }
        let reached = self.search(maze, from, to);
        self.backtrack(maze, from, reached);
        &self.route
    }

    /// Expands cells until the goal is reached or `max_cells` cells are expanded. Returns the cell that the path should
    /// end in.
    fn search(&mut self, maze: &Maze, from: MazeCell, to: MazeCell) -> MazeCell {
        let side = usize::from(maze.cells_per_side());
        self.entry_directions.clear();
        self.entry_directions.resize(side * side, None);
        self.visited.clear();
        self.visited.push(from);
        let mut expanded = 0;
        while expanded < self.visited.len().min(self.max_cells) {
            let cell = self.visited[expanded];
            if cell == to {
                return to;
            }
            self.expand(maze, from, cell);
            expanded += 1;
        }
        let gap = |visited: &MazeCell| (visited.0 - to.0).pow(2) + (visited.1 - to.1).pow(2);
        self.visited.iter().copied().min_by_key(gap).unwrap_or(from)
    }

    fn expand(&mut self, maze: &Maze, from: MazeCell, cell: MazeCell) {
        for direction in Direction::ALL {
            let neighbour = direction.neighbour(cell);
            if !maze.has_wall(cell, direction)
                && neighbour != from
                && self.entry_directions[index(maze, neighbour)].is_none()
            {
                self.entry_directions[index(maze, neighbour)] = Some(direction);
                self.visited.push(neighbour);
            }
        }
    }

    /// Collects the path backwards from the reached cell to the start, then reverses it.
    fn backtrack(&mut self, maze: &Maze, from: MazeCell, reached: MazeCell) {
        let mut cell = reached;
        while cell != from {
            self.route.push(cell);
            let Some(direction) = self.entry_directions[index(maze, cell)] else { break };
            let (east, south) = direction.offset();
            cell = (cell.0 - east, cell.1 - south);
        }
        self.route.reverse();
    }
}

fn has_cell(maze: &Maze, (x, y): MazeCell) -> bool {
    let inside = 0..i32::from(maze.cells_per_side());
    inside.contains(&x) && inside.contains(&y)
}

fn index(maze: &Maze, (x, y): MazeCell) -> usize {
    y as usize * usize::from(maze.cells_per_side()) + x as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the distance of every cell from `from`, in cells, by a slower method: relaxation rounds until nothing
    /// changes.
    fn reference_distances(maze: &Maze, from: MazeCell) -> Vec<usize> {
        let side = i32::from(maze.cells_per_side());
        let mut distances = vec![usize::MAX; (side * side) as usize];
        distances[index(maze, from)] = 0;
        loop {
            let before = distances.clone();
            for at in 0..side * side {
                let cell = (at % side, at / side);
                for direction in Direction::ALL.into_iter().filter(|direction| !maze.has_wall(cell, *direction)) {
                    let via_neighbour = distances[index(maze, direction.neighbour(cell))].saturating_add(1);
                    let own = &mut distances[at as usize];
                    *own = (*own).min(via_neighbour);
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
        let mut finder = PathFinder::new(usize::MAX);
        for from in [(0, 0), (7, 9), (15, 3)] {
            let distances = reference_distances(&maze, from);
            for at in 0..256 {
                let route = finder.find(&maze, from, (at % 16, at / 16));
                assert_eq!(route.len(), distances[at as usize]);
                let mut cell = from;
                for next in route {
                    let leads_to_next =
                        |direction: &Direction| direction.neighbour(cell) == *next && !maze.has_wall(cell, *direction);
                    assert!(Direction::ALL.iter().any(leads_to_next), "no opening from {cell:?} to {next:?}");
                    cell = *next;
                }
            }
        }
    }

    #[test]
    fn distant_goal_yields_a_path_towards_it() {
        let maze = Maze::new(5, 128);
        let mut finder = PathFinder::new(500);
        let route = finder.find(&maze, (0, 0), (127, 127));
        let (x, y) = *route.last().expect("the route is not empty");
        assert!(x + y > 10 && route.len() < 500);
        assert!(finder.find(&maze, (-1, 0), (3, 3)).is_empty(), "a route starts outside the maze");
    }
}
