//! One vector a position, all of one width.

/// `[rows, width]`, row after row.
#[derive(Clone, Debug)]
pub struct Rows {
    width: usize,
    values: Vec<f32>,
}

impl Rows {
    /// No rows yet; `width` is at least 1.
    pub fn new(width: usize) -> Self {
        Rows {
            width,
            values: Vec::new(),
        }
    }

    /// `rows` rows of zeros.
    pub fn zeros(rows: usize, width: usize) -> Self {
        Rows {
            width,
            values: vec![0.0; rows * width],
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len() / self.width
    }

    /// Row `index`.
    pub fn row(&self, index: usize) -> &[f32] {
        &self.values[index * self.width..][..self.width]
    }

    /// The last row; there is one.
    pub fn last(&self) -> &[f32] {
        self.row(self.len() - 1)
    }

    /// All rows.
    pub fn iter(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.width)
    }

    /// All rows, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.values.chunks_exact_mut(self.width)
    }

    /// All values, to be changed.
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// Appends one row.
    pub fn push(&mut self, row: &[f32]) {
        self.values.extend_from_slice(row);
    }

    /// Appends the rows of another.
    pub fn append(&mut self, other: &Rows) {
        self.values.extend_from_slice(&other.values);
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.values.clear();
    }

    /// Adds the rows of another of the same shape.
    pub fn add(&mut self, other: &Rows) {
        for (value, other) in self.values.iter_mut().zip(&other.values) {
            *value += other;
        }
    }

    /// Adds one vector to every row.
    pub fn add_to_each(&mut self, vector: &[f32]) {
        for row in self.iter_mut() {
            for (value, other) in row.iter_mut().zip(vector) {
                *value += other;
            }
        }
    }
}
