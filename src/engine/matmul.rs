//! The matmul machine: products of several matrices with one batch of activations.
//!
//! Matrices that take the same kind of activations share one quantization and one dispatch; the
//! fork machine decides whether that runs on one lane or on all. A group of several kinds falls
//! apart into products of one matrix each.

use super::counters::ProductCounts;
use super::error::{EngineError, finish};
use super::fork::Forker;
use emel_kernels::{
    ActivationKind, ActivationView, Activations, Kernels, MatmulJob, MatmulPart, PackedMatrix,
    QuantizeJob, Scratch, Tile,
};
use sml::sml;
use std::marker::PhantomData;

/// Computes the context's products.
#[derive(Debug, Clone, Copy)]
pub struct Multiply;

sml! {
    Matmul {
        *"idle"_s + event<Multiply> [mixed] / multiply_each = "joined"_s,
        "idle"_s + event<Multiply> [!mixed && float] / multiply_float = "joined"_s,
        "idle"_s + event<Multiply> [!mixed && block32] / quantize_block32 = "quantized"_s,
        "idle"_s + event<Multiply> [!mixed && block256] / quantize_block256 = "quantized"_s,
        "idle"_s + exception<_> = "failed"_s,
        "idle"_s + unexpected_event<_> / ignore,

        "quantized"_s + completion<_> / multiply_quantized = "joined"_s,
        "quantized"_s + exception<_> = "failed"_s,
        "quantized"_s + unexpected_event<_> / ignore,

        "joined"_s + unexpected_event<_> / ignore,
        "failed"_s + unexpected_event<_> / ignore,
    }
}

/// Buffers that every product uses, one after another.
pub(super) struct Buffers {
    /// Quantized activations.
    pub activations: Activations,
    /// The lanes' working memory.
    pub scratch: Scratch,
    /// Products by weight type and tile.
    pub counts: ProductCounts,
}

/// One product: a matrix, and the rows that receive it, `[tokens, matrix.rows()]`.
pub(super) type Product<'a> = (&'a PackedMatrix, &'a mut [f32]);

struct Context<'a, 'f, T, const N: usize> {
    kernels: Kernels,
    forker: &'a mut Forker<'f>,
    buffers: &'a mut Buffers,
    x: &'a [f32],
    n_tokens: usize,
    products: Option<[Product<'a>; N]>,
    failure: &'a mut Option<EngineError>,
    tile: PhantomData<T>,
}

impl<T: Tile, const N: usize> Context<'_, '_, T, N> {
    /// The kinds of activations that the matrices take.
    fn kinds(&self) -> impl Iterator<Item = ActivationKind> {
        self.products
            .iter()
            .flatten()
            .map(|(matrix, _)| matrix.activation())
    }

    fn all(&self, kind: ActivationKind) -> bool {
        self.kinds().all(|found| found == kind)
    }

    /// Multiply-adds of all products together.
    fn work(&self) -> usize {
        let rows: usize = self
            .products
            .iter()
            .flatten()
            .map(|(matrix, _)| matrix.rows())
            .sum();
        rows * self.x.len()
    }

    fn check(&mut self, result: Result<(), EngineError>) -> Result<(), ()> {
        result.map_err(|error| *self.failure = Some(error))
    }

    fn quantize(&mut self, kind: ActivationKind) -> Result<(), ()> {
        let activations = &mut self.buffers.activations;
        let mut job = QuantizeJob::<T>::new(self.kernels, activations, kind, self.x, self.n_tokens);
        let result = self.forker.run(&mut job, self.x.len());
        self.check(result)
    }
}

/// Runs the products with the activations in `view`.
fn multiply_all<T: Tile, const N: usize>(
    forker: &mut Forker<'_>,
    view: ActivationView<'_>,
    scratch: &mut Scratch,
    counts: &mut ProductCounts,
    products: [Product<'_>; N],
    work: usize,
) -> Result<(), EngineError> {
    products
        .iter()
        .for_each(|(matrix, _)| counts.add(matrix.ty(), T::KIND));
    let parts = products.map(|(matrix, out)| MatmulPart::new(matrix, view, out));
    forker.run(&mut MatmulJob::<T>::new(parts, scratch), work)
}

impl<T: Tile, const N: usize> MatmulStateMachineContext for Context<'_, '_, T, N> {
    fn mixed(&self, _: &Multiply) -> Result<bool, ()> {
        let first = self.kinds().next();
        Ok(self.kinds().any(|kind| Some(kind) != first))
    }

    fn float(&self, _: &Multiply) -> Result<bool, ()> {
        Ok(self.all(ActivationKind::F32))
    }

    fn block32(&self, _: &Multiply) -> Result<bool, ()> {
        Ok(self.all(ActivationKind::Q8x32))
    }

    fn block256(&self, _: &Multiply) -> Result<bool, ()> {
        Ok(self.all(ActivationKind::Q8x256))
    }

    fn multiply_each(&mut self, _: &Multiply) -> Result<(), ()> {
        let result = self
            .products
            .take()
            .into_iter()
            .flatten()
            .try_for_each(|product| {
                multiply::<T, 1>(
                    self.kernels,
                    self.forker,
                    self.buffers,
                    self.x,
                    self.n_tokens,
                    [product],
                )
            });
        self.check(result)
    }

    fn multiply_float(&mut self, _: &Multiply) -> Result<(), ()> {
        let work = self.work();
        let k = self.x.len() / self.n_tokens;
        let view = ActivationView::f32(self.x, self.n_tokens, k);
        let Buffers {
            scratch, counts, ..
        } = &mut *self.buffers;
        let result = self.products.take().into_iter().try_for_each(|products| {
            multiply_all::<T, N>(self.forker, view, scratch, counts, products, work)
        });
        self.check(result)
    }

    fn quantize_block32(&mut self, _: &Multiply) -> Result<(), ()> {
        self.quantize(ActivationKind::Q8x32)
    }

    fn quantize_block256(&mut self, _: &Multiply) -> Result<(), ()> {
        self.quantize(ActivationKind::Q8x256)
    }

    fn multiply_quantized(&mut self) -> Result<(), ()> {
        let work = self.work();
        let Buffers {
            activations,
            scratch,
            counts,
        } = &mut *self.buffers;
        let view = activations.view();
        let result = self.products.take().into_iter().try_for_each(|products| {
            multiply_all::<T, N>(self.forker, view, scratch, counts, products, work)
        });
        self.check(result)
    }

    fn ignore(&mut self) -> Result<(), ()> {
        Ok(())
    }
}

/// `out[t, r] = Σ_k matrix[r, k] x[t, k]` for every product, `x` being `[n_tokens, k]`.
///
/// # Errors
/// [`EngineError::Lane`] when a lane is lost; the outputs are not to be used then.
pub(super) fn multiply<T: Tile, const N: usize>(
    kernels: Kernels,
    forker: &mut Forker<'_>,
    buffers: &mut Buffers,
    x: &[f32],
    n_tokens: usize,
    products: [Product<'_>; N],
) -> Result<(), EngineError> {
    let mut failure = None;
    let context = Context::<T, N> {
        kernels,
        forker,
        buffers,
        x,
        n_tokens,
        products: Some(products),
        failure: &mut failure,
        tile: PhantomData,
    };
    let mut machine = MatmulStateMachine::new(context);
    // What went wrong stands in `failure`; a table without a row for the case ends elsewhere.
    let _ = machine.process_event(Multiply);
    let done = machine.is(&MatmulStates::Joined);
    finish(done, failure)
}
