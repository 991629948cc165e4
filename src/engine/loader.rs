//! The loader machine: from a path to an engine that is ready to run.
//!
//! The file is parsed and its model bound before any memory is taken; then tensors are packed on
//! all lanes, in the order of the file and in pieces whose pages are given back at once, so that
//! memory peaks near the size of the file. A vector is copied. Rows of the embedding table are read
//! as tokens ask for them: from the output matrix where the two are one, else from the file's map.

use super::error::EngineError;
use super::memory::{self, Memory};
use super::observer::{Event, Observer};
use super::pools::Pools;
use super::speculation::{Speculator, Work};
use super::weights::{Embedding, LayerWeights, Weights, matrices, vectors};
use super::workspace::Workspace;
use super::{Engine, LoadOptions};
use crate::gguf::{Gguf, TensorInfo};
use crate::model::{self, LayerTensors, Model, ModelSpec, RopeSpec, TensorId};
use crate::packed::{self, PackedCopy, PackedError, PackedReport};
use emel_kernels::{
    Arena, Dequantizer, Kernels, PackError, PackJob, PackedMatrix, RopePairs, RopeTable,
    WeightType, packed_bytes, rope_frequencies,
};
use sml::sml;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;

/// Starts the load that the context describes.
#[derive(Debug, Clone, Copy)]
pub struct Open;

sml! {
    Load {
        *"closed"_s + event<Open> / (check_policy, parse) = "parsed"_s,
        "closed"_s + exception<_> = "failed"_s,
        "closed"_s + unexpected_event<_> / ignore,

        "parsed"_s + completion<_> / (bind, check_cache) = "bound"_s,
        "parsed"_s + exception<_> = "failed"_s,
        "parsed"_s + unexpected_event<_> / ignore,

        "bound"_s + completion<_> [wants_copy] / open_copy = "sought"_s,
        "bound"_s + completion<_> [!wants_copy] / (allocate, plan) = "packing"_s,
        "bound"_s + exception<_> = "failed"_s,
        "bound"_s + unexpected_event<_> / ignore,

        "sought"_s + completion<_> [has_copy] / (adopt, plan) = "packing"_s,
        "sought"_s + completion<_> [!has_copy] / (allocate, plan) = "packing"_s,
        "sought"_s + exception<_> = "failed"_s,
        "sought"_s + unexpected_event<_> / ignore,

        "packing"_s + completion<_> [none_left && makes_copy] / (keep_copy, assemble) = "packed"_s,
        "packing"_s + completion<_> [none_left && !makes_copy] / assemble = "packed"_s,
        "packing"_s + completion<_> [!none_left && vector] / copy_vector = "placed"_s,
        "packing"_s + completion<_> [!none_left && !vector] / pack_matrix = "placed"_s,
        "packing"_s + exception<_> = "failed"_s,
        "packing"_s + unexpected_event<_> / ignore,

        "placed"_s + completion<_> = "packing"_s,
        "placed"_s + unexpected_event<_> / ignore,

        "packed"_s + completion<_> / reserve = "ready"_s,
        "packed"_s + exception<_> = "failed"_s,
        "packed"_s + unexpected_event<_> / ignore,

        "ready"_s + unexpected_event<_> / ignore,
        "failed"_s + unexpected_event<_> / ignore,
    }
}

/// What awaits its place: a vector, or some groups of rows of a matrix.
#[derive(Clone)]
struct Item {
    tensor: TensorId,
    vector: bool,
    /// The matrix's groups of rows; none for a vector.
    groups: Range<usize>,
}

/// Bytes of a matrix that are packed before their pages are given back.
const PIECE_BYTES: usize = 8 << 20;

/// A matrix that is packed.
#[derive(Clone, Copy)]
struct Shape {
    id: TensorId,
    ty: WeightType,
    rows: usize,
    cols: usize,
    /// Packed.
    bytes: usize,
}

/// What a load has found and made so far.
#[derive(Default)]
struct Found {
    source: Option<Gguf>,
    model: Option<Model>,
    kernels: Option<Kernels>,
    pools: Option<Pools>,
    /// What is still to be placed, last in the file first.
    queue: Vec<Item>,
    /// Placed vectors and matrices, by tensor.
    vectors: Vec<Option<Vec<f32>>>,
    matrices: Vec<Option<PackedMatrix>>,
    /// The packed copy's matrices, in the order of [`matrices`].
    copy: Option<Result<Vec<PackedMatrix>, PackedError>>,
    packed: PackedReport,
    weights: Option<Weights>,
    bytes_done: u64,
    bytes_total: u64,
}

struct Context<'a> {
    path: &'a Path,
    options: &'a LoadOptions,
    observer: &'a dyn Observer,
    found: Found,
    outcome: &'a mut Option<Result<Engine, EngineError>>,
}

impl Context<'_> {
    /// Runs `action`; an error is kept for the caller and raises the machine's exception.
    fn act(&mut self, action: impl FnOnce(&mut Self) -> Result<(), EngineError>) -> Result<(), ()> {
        action(self).map_err(|error| *self.outcome = Some(Err(error)))
    }

    /// Says how much is packed.
    fn report(&mut self, tensor_bytes: u64) {
        self.found.bytes_done += tensor_bytes;
        self.observer.event(Event::Packing {
            done: self.found.bytes_done,
            total: self.found.bytes_total,
        });
    }
}

impl Found {
    fn source(&self) -> Result<&Gguf, EngineError> {
        self.source.as_ref().ok_or(EngineError::Order)
    }

    fn model(&self) -> Result<&Model, EngineError> {
        self.model.as_ref().ok_or(EngineError::Order)
    }

    /// What is packed, in the order of [`matrices`].
    fn shapes(&self) -> Result<Vec<Shape>, EngineError> {
        let tensors = self.source()?.tensors();
        let shape = |id: TensorId| {
            let tensor = &tensors[id.index()];
            let (rows, cols) = (tensor.n_rows() as usize, tensor.row_len() as usize);
            let ty = weight_type(tensor)?;
            let bytes =
                packed_bytes(ty, rows, cols).map_err(|source| pack_error(tensor, source))?;
            Ok(Shape {
                id,
                ty,
                rows,
                cols,
                bytes,
            })
        };
        matrices(self.model()?).into_iter().map(shape).collect()
    }

    /// Room for what is to be placed, by tensor.
    fn make_places(&mut self) -> Result<(), EngineError> {
        let n_tensors = self.source()?.tensors().len();
        self.vectors.resize_with(n_tensors, || None);
        self.matrices.resize_with(n_tensors, || None);
        Ok(())
    }

    fn next(&mut self) -> Result<Item, EngineError> {
        self.queue.pop().ok_or(EngineError::Order)
    }

    fn vector(&mut self, tensor: TensorId) -> Result<Vec<f32>, EngineError> {
        self.vectors[tensor.index()]
            .take()
            .ok_or(EngineError::Order)
    }

    fn vector_or_empty(&mut self, tensor: Option<TensorId>) -> Result<Vec<f32>, EngineError> {
        Ok(tensor
            .map(|tensor| self.vector(tensor))
            .transpose()?
            .unwrap_or_default())
    }

    fn matrix(&mut self, tensor: TensorId) -> Result<PackedMatrix, EngineError> {
        self.matrices[tensor.index()]
            .take()
            .ok_or(EngineError::Order)
    }

    fn layer(&mut self, tensors: &LayerTensors) -> Result<LayerWeights, EngineError> {
        Ok(LayerWeights {
            attn_norm: self.vector(tensors.attn_norm)?,
            wq: self.matrix(tensors.wq)?,
            wk: self.matrix(tensors.wk)?,
            wv: self.matrix(tensors.wv)?,
            wo: self.matrix(tensors.wo)?,
            bq: self.vector_or_empty(tensors.bq)?,
            bk: self.vector_or_empty(tensors.bk)?,
            bv: self.vector_or_empty(tensors.bv)?,
            q_norm: self.vector_or_empty(tensors.q_norm)?,
            k_norm: self.vector_or_empty(tensors.k_norm)?,
            post_attn_norm: self.vector_or_empty(tensors.post_attn_norm)?,
            ffn_norm: self.vector(tensors.ffn_norm)?,
            w_gate: self.matrix(tensors.w_gate)?,
            w_up: self.matrix(tensors.w_up)?,
            w_down: self.matrix(tensors.w_down)?,
            post_ffn_norm: self.vector_or_empty(tensors.post_ffn_norm)?,
        })
    }
}

/// A matrix as pieces of about [`PIECE_BYTES`].
fn pieces(tensor: TensorId, matrix: &PackedMatrix) -> Vec<Item> {
    let (n_groups, step) = (
        matrix.n_groups(),
        (PIECE_BYTES / matrix.group_bytes()).max(1),
    );
    let ranges = (0..n_groups)
        .step_by(step)
        .map(|start| start..n_groups.min(start + step));
    ranges
        .map(|groups| Item {
            tensor,
            vector: false,
            groups,
        })
        .collect()
}

/// What is wrong with a tensor.
fn pack_error(tensor: &TensorInfo, source: PackError) -> EngineError {
    EngineError::Pack {
        tensor: tensor.name.clone(),
        source,
    }
}

/// The kernels' name for a tensor's type, which binding has found to be supported.
fn weight_type(tensor: &TensorInfo) -> Result<WeightType, EngineError> {
    WeightType::from_name(tensor.ty.name()).ok_or(EngineError::Order)
}

/// Rotation tables for `n_ctx` positions.
fn rope_tables(spec: &ModelSpec, n_ctx: usize) -> Result<Vec<RopeTable>, EngineError> {
    let table = |rope: &RopeSpec| {
        let (base, scale) = (f64::from(rope.base), f64::from(rope.freq_scale));
        let frequencies = rope_frequencies(rope.n_dims, base, scale, rope.factors_for(n_ctx));
        RopeTable::new(
            RopePairs::from(rope.kind),
            frequencies,
            f64::from(rope.attn_factor),
            n_ctx,
        )
    };
    Ok(spec
        .ropes
        .iter()
        .map(table)
        .collect::<Result<Vec<_>, _>>()?)
}

/// A number of a policy that must not be zero.
fn positive(what: &'static str, value: usize) -> Result<NonZeroUsize, EngineError> {
    NonZeroUsize::new(value).ok_or(EngineError::Policy { what, value })
}

impl LoadStateMachineContext for Context<'_> {
    fn none_left(&self) -> Result<bool, ()> {
        Ok(self.found.queue.is_empty())
    }

    fn vector(&self) -> Result<bool, ()> {
        Ok(self.found.queue.last().is_some_and(|item| item.vector))
    }

    fn check_policy(&mut self, _: &Open) -> Result<(), ()> {
        self.act(|load| {
            let LoadOptions {
                execution,
                routes,
                n_ctx,
                ..
            } = load.options;
            positive("the number of threads", execution.lanes)?;
            positive("the number of threads for prompts", execution.lanes_batch)?;
            positive("the physical batch size", routes.n_ubatch)?;
            n_ctx
                .map(|n_ctx| positive("the context size", n_ctx))
                .transpose()?;
            let level = execution.level;
            let kernels = Kernels::new(level).ok_or(EngineError::Unavailable(level))?;
            load.found.kernels = Some(kernels);
            load.found.pools = Some(Pools::new(execution)?);
            Ok(())
        })
    }

    fn parse(&mut self, _: &Open) -> Result<(), ()> {
        self.act(|load| {
            let source = Gguf::open_with(load.path, &load.options.overrides)?;
            load.found.source = Some(source);
            Ok(())
        })
    }

    fn bind(&mut self) -> Result<(), ()> {
        self.act(|load| {
            load.found.model = Some(model::bind(load.found.source()?)?);
            load.observer.event(Event::Bound);
            Ok(())
        })
    }

    /// Refuses a cache that cannot be, before anything is packed.
    fn check_cache(&mut self) -> Result<(), ()> {
        self.act(|load| {
            let spec = &load.found.model()?.spec;
            memory::shapes(spec, load.options).try_for_each(|shape| {
                shape.bytes()?;
                Ok(())
            })
        })
    }

    fn wants_copy(&self) -> Result<bool, ()> {
        Ok(self.options.packed.is_some())
    }

    fn has_copy(&self) -> Result<bool, ()> {
        Ok(self.found.copy.as_ref().is_some_and(Result::is_ok))
    }

    fn makes_copy(&self) -> Result<bool, ()> {
        Ok(self.options.packed.is_some() && !self.found.packed.used)
    }

    /// That there is no copy, or one that does not fit, is no error.
    fn open_copy(&mut self) -> Result<(), ()> {
        self.act(|load| {
            let place = load.options.packed.as_ref().ok_or(EngineError::Order)?;
            let kernels = load.found.kernels.ok_or(EngineError::Order)?;
            let shapes = load.found.shapes()?;
            let tensors = load.found.source()?.tensors();
            let wanted = shapes.iter().map(|shape| {
                let name = tensors[shape.id.index()].name.as_str();
                (name, shape.ty, [shape.rows, shape.cols])
            });
            let opened = PackedCopy::open(place).and_then(|copy| copy.matrices(kernels, wanted));
            load.found.copy = Some(opened);
            Ok(())
        })
    }

    fn adopt(&mut self) -> Result<(), ()> {
        self.act(|load| {
            let copy = load.found.copy.take().and_then(Result::ok);
            let copy = copy.ok_or(EngineError::Order)?;
            load.found.packed.used = true;
            let ids = matrices(load.found.model()?);
            load.found.make_places()?;
            ids.into_iter().zip(copy).for_each(|(id, matrix)| {
                load.found.matrices[id.index()] = Some(matrix);
            });
            Ok(())
        })
    }

    fn allocate(&mut self) -> Result<(), ()> {
        self.act(|load| {
            let kernels = load.found.kernels.ok_or(EngineError::Order)?;
            let shapes = load.found.shapes()?;
            let bytes = shapes.iter().map(|shape| Arena::takes(shape.bytes));
            let mut arena = Arena::new(bytes.sum()).map_err(|source| EngineError::Memory {
                what: "the weights",
                source,
                cure: "choose a smaller model",
            })?;
            let tensors = load.found.source()?.tensors();
            let allocated = shapes.into_iter().map(|shape| {
                let Shape {
                    id, ty, rows, cols, ..
                } = shape;
                let matrix = PackedMatrix::allocate_in(&mut arena, kernels, ty, rows, cols);
                let fail = |source| pack_error(&tensors[id.index()], source);
                Ok::<_, EngineError>((id, matrix.map_err(fail)?))
            });
            let allocated = allocated.collect::<Result<Vec<_>, _>>()?;
            load.found.make_places()?;
            load.found.queue = allocated
                .iter()
                .flat_map(|(id, matrix)| pieces(*id, matrix))
                .collect();
            allocated.into_iter().for_each(|(id, matrix)| {
                load.found.matrices[id.index()] = Some(matrix);
            });
            Ok(())
        })
    }

    fn plan(&mut self) -> Result<(), ()> {
        self.act(|load| {
            let copied = vectors(load.found.model()?);
            let mut queue = std::mem::take(&mut load.found.queue);
            queue.extend(copied.iter().map(|&tensor| Item {
                tensor,
                vector: true,
                groups: 0..0,
            }));
            let tensors = load.found.source()?.tensors();
            let place = |item: &Item| {
                let tensor = &tensors[item.tensor.index()];
                std::cmp::Reverse((tensor.shard, tensor.offset, item.groups.start))
            };
            queue.sort_by_key(place);
            // A matrix's pieces follow each other.
            let mut placed: Vec<TensorId> = queue.iter().map(|item| item.tensor).collect();
            placed.dedup();
            let bytes = placed.into_iter().map(|id| tensors[id.index()].n_bytes);
            load.found.bytes_total = bytes.sum();
            load.found.queue = queue;
            load.report(0);
            Ok(())
        })
    }

    fn copy_vector(&mut self) -> Result<(), ()> {
        self.act(|load| {
            let index = load.found.next()?.tensor.index();
            let source = load.found.source()?;
            let tensor = &source.tensors()[index];
            let words = source.data(tensor).as_chunks::<4>().0;
            let n_bytes = tensor.n_bytes;
            let vector = words.iter().map(|&word| f32::from_le_bytes(word)).collect();
            source.release(tensor);
            load.found.vectors[index] = Some(vector);
            load.report(n_bytes);
            Ok(())
        })
    }

    fn pack_matrix(&mut self) -> Result<(), ()> {
        self.act(|load| {
            let Item { tensor, groups, .. } = load.found.next()?;
            let index = tensor.index();
            let mut matrix = load.found.matrices[index]
                .take()
                .ok_or(EngineError::Order)?;
            let mut pools = load.found.pools.take().ok_or(EngineError::Order)?;
            let source = load.found.source()?;
            let tensor = &source.tensors()[index];
            let group_bytes = matrix.group_bytes();
            let end = matrix.source_bytes().min(groups.end * group_bytes);
            let bytes = groups.start * group_bytes..end;
            let data = &source.data(tensor)[bytes.clone()];
            let fail = |source| pack_error(tensor, source);
            let mut job = PackJob::groups(&mut matrix, groups, data).map_err(fail)?;
            let batch = pools.batch;
            pools
                .forker(batch, &load.options.execution)
                .run(&mut job, bytes.len())?;
            source.release_part(tensor, bytes.clone());
            load.found.matrices[index] = Some(matrix);
            load.found.pools = Some(pools);
            load.report(bytes.len() as u64);
            Ok(())
        })
    }

    /// That a copy cannot be written is no error: the report tells it.
    fn keep_copy(&mut self) -> Result<(), ()> {
        self.act(|load| {
            let place = load.options.packed.as_ref().ok_or(EngineError::Order)?;
            let tensors = load.found.source()?.tensors();
            let packed = load.found.matrices.iter().zip(tensors);
            let named = packed
                .filter_map(|(matrix, tensor)| Some((tensor.name.as_str(), matrix.as_ref()?)));
            load.found.packed.kept = Some(packed::keep(place, named));
            Ok(())
        })
    }

    fn assemble(&mut self) -> Result<(), ()> {
        self.act(|load| {
            let model = load.found.model.take().ok_or(EngineError::Order)?;
            let tensors = &model.tensors;
            let layers = tensors.layers.iter().map(|layer| load.found.layer(layer));
            let layers = layers.collect::<Result<Vec<_>, _>>()?;
            load.found.weights = Some(Weights {
                layers,
                output_norm: load.found.vector(tensors.output_norm)?,
                output: load.found.matrix(tensors.output)?,
            });
            load.found.model = Some(model);
            load.observer.event(Event::Packed);
            Ok(())
        })
    }

    fn reserve(&mut self) -> Result<(), ()> {
        self.act(|load| {
            let found = std::mem::take(&mut load.found);
            let LoadOptions {
                execution,
                routes,
                speculation,
                ..
            } = *load.options;
            let Model { spec, tensors } = found.model.ok_or(EngineError::Order)?;
            let source = found.source.ok_or(EngineError::Order)?;
            let pools = found.pools.ok_or(EngineError::Order)?;
            let kernels = found.kernels.ok_or(EngineError::Order)?;
            let n_ctx = load.options.context(&spec);
            let n_ubatch = load.options.batch(&spec);
            let table = &source.tensors()[tensors.token_embd.index()];
            let embedding = Embedding {
                tensor: tensors.token_embd,
                dequantizer: Dequantizer::new(weight_type(table)?),
                tied: tensors.token_embd == tensors.output,
                row: vec![0; table.row_bytes() as usize].into_boxed_slice(),
            };
            let speculator = Speculator::new(speculation, Work::of(&spec), n_ubatch);
            let n_logits = speculator.n_rows();
            let lanes = pools.widest();
            let engine = Engine {
                ropes: rope_tables(&spec, n_ctx)?,
                memory: Memory::allocate(kernels, &spec, load.options)?,
                workspace: Workspace::new(&spec, n_ubatch, n_logits, n_ctx, lanes)?,
                weights: found.weights.ok_or(EngineError::Order)?,
                kernels,
                execution,
                routes: routes.with_ubatch(n_ubatch),
                observer: Box::new(()),
                last_row: 0,
                logits_row: 0,
                speculator,
                embedding,
                spec,
                source,
                pools,
                packed: PackedReport {
                    ignored: found.copy.and_then(Result::err),
                    ..found.packed
                },
            };
            *load.outcome = Some(Ok(engine));
            load.observer.event(Event::Ready);
            Ok(())
        })
    }

    fn ignore(&mut self) -> Result<(), ()> {
        Ok(())
    }
}

impl Engine {
    /// Loads the model at `path` (any shard of a split one).
    ///
    /// # Errors
    /// What is wrong with the file, the options or the machine.
    pub fn load(path: &Path, options: &LoadOptions) -> Result<Engine, EngineError> {
        Engine::load_with(path, options, &())
    }

    /// As [`load`](Self::load), watched by `observer`.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with(
        path: &Path,
        options: &LoadOptions,
        observer: &dyn Observer,
    ) -> Result<Engine, EngineError> {
        observer.event(Event::LoadBegins);
        let mut outcome = None;
        let found = Found::default();
        let context = Context {
            path,
            options,
            observer,
            found,
            outcome: &mut outcome,
        };
        let _ = LoadStateMachine::new(context).process_event(Open);
        outcome.unwrap_or(Err(EngineError::Order))
    }
}
