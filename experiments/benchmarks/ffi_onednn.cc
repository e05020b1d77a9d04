// oneDNN's convolutions and LSTM as calls that XLA:CPU makes: the prototype of ffi_onednn.py.
//
// Arrays are float32; images are NHWC, kernels HWIO, sequences time-major. A primitive is made at
// the first execution of a call and kept with it. Scratch memory belongs to the thread.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "oneapi/dnnl/dnnl.hpp"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using dnnl::memory;
using Arguments = std::unordered_map<int, memory>;
using Tag = memory::format_tag;

namespace {

constexpr auto kFloat = memory::data_type::f32;

dnnl::engine& Engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& Stream() {
  thread_local dnnl::stream stream(Engine());
  return stream;
}

// Memory of this thread that is kept between calls; `slot` tells apart what one call needs at once.
void* Scratch(size_t slot, size_t bytes) {
  struct Buffer {
    void* data = nullptr;
    size_t bytes = 0;
  };
  thread_local Buffer buffers[8];
  Buffer& buffer = buffers[slot];
  if (buffer.bytes < bytes) {
    std::free(buffer.data);
    buffer.bytes = (bytes + 4095) / 4096 * 4096;
    buffer.data = std::aligned_alloc(4096, buffer.bytes);
  }
  return buffer.data;
}

dnnl::primitive_attr Attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

memory At(const memory::desc& description, void* data) {
  return memory(description, Engine(), data);
}

void Reorder(memory from, memory to) {
  dnnl::reorder(from, to).execute(Stream(), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

// ---- Convolutions ----

// Kernel's shape (HWIO), strides, padding before and after, and dilation - 1, each (rows, columns).
struct Geometry {
  int64_t kernel[4], stride[2], before[2], after[2], dilation[2], groups;
  memory::dims Pair(const int64_t* two) const { return {two[0], two[1]}; }
};

memory::desc Images(const int64_t* nhwc) {
  return {{nhwc[0], nhwc[3], nhwc[1], nhwc[2]}, kFloat, Tag::nhwc};
}

memory::desc Kernel(const Geometry& g, bool any) {
  const int64_t *k = g.kernel, features = k[3] / g.groups;
  if (g.groups == 1) return {{k[3], k[2], k[0], k[1]}, kFloat, any ? Tag::any : Tag::hwio};
  memory::dims shape{g.groups, features, k[2], k[0], k[1]};
  if (any) return {shape, kFloat, Tag::any};
  return {shape, kFloat, memory::dims{features, 1, k[3], k[1] * k[2] * k[3], k[2] * k[3]}};
}

// The forward convolution, with (bias, residual sum, ReLU) for inference.
dnnl::convolution_forward::primitive_desc Forward(const Geometry& g, const memory::desc& x,
                                                  const memory::desc& y, bool inference,
                                                  bool residual, bool relu) {
  dnnl::post_ops after;
  if (residual) after.append_sum(1.0f);
  if (relu) after.append_eltwise(dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
  dnnl::primitive_attr attributes = Attributes();
  attributes.set_post_ops(after);
  memory::desc bias = inference ? memory::desc({g.kernel[3]}, kFloat, Tag::a) : memory::desc();
  return {Engine(),
          inference ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training,
          dnnl::algorithm::convolution_auto, x, Kernel(g, true), bias, y, g.Pair(g.stride),
          g.Pair(g.dilation), g.Pair(g.before), g.Pair(g.after), attributes};
}

struct Convolution {
  static ffi::TypeId id;
  static ffi::TypeInfo info;
  std::mutex mutex;
  std::optional<dnnl::primitive> primitive;
  memory::desc a, b, result, scratch;  // in the layouts that the primitive wants
};
ffi::TypeId Convolution::id = {};
ffi::TypeInfo Convolution::info = ffi::MakeTypeInfo<Convolution>();

ffi::ErrorOr<std::unique_ptr<Convolution>> NewConvolution() {
  return std::make_unique<Convolution>();
}

void Prepare(Convolution& call, std::string_view direction, const Geometry& g,
             const int64_t* a, const int64_t* b, const int64_t* result, bool residual, bool relu) {
  auto keep = [&](auto& made) {
    call.scratch = made.scratchpad_desc();
    call.primitive = dnnl::primitive(made);
  };
  auto algorithm = dnnl::algorithm::convolution_auto;
  memory::desc any = Kernel(g, true);
  if (direction == "data") {
    memory::desc x = Images(result), y = Images(a);
    dnnl::convolution_backward_data::primitive_desc made(
        Engine(), algorithm, x, any, y, g.Pair(g.stride), g.Pair(g.dilation), g.Pair(g.before),
        g.Pair(g.after), Forward(g, x, y, false, false, false), Attributes());
    call.a = y, call.b = made.weights_desc(), call.result = x;
    keep(made);
  } else if (direction == "weight") {
    memory::desc x = Images(a), y = Images(b);
    dnnl::convolution_backward_weights::primitive_desc made(
        Engine(), algorithm, x, any, y, g.Pair(g.stride), g.Pair(g.dilation), g.Pair(g.before),
        g.Pair(g.after), Forward(g, x, y, false, false, false), Attributes());
    call.a = x, call.b = y, call.result = made.diff_weights_desc();
    keep(made);
  } else {
    auto made = Forward(g, Images(a), Images(result), direction == "inference", residual, relu);
    call.a = Images(a), call.b = made.weights_desc(), call.result = Images(result);
    keep(made);
  }
}

Geometry Read(ffi::Span<const int64_t> numbers) {
  Geometry g;
  static_assert(sizeof(g) == 13 * sizeof(int64_t));
  std::memcpy(&g, numbers.begin(), sizeof(g));
  return g;
}

// Arguments by direction: forward (x, w), data (y, w), weight (x, y), and inference (x, packed w,
// bias and, if `residual`, an array that is added and may share the result's memory).
ffi::Error RunConvolution(Convolution* call, ffi::RemainingArgs given,
                          ffi::Result<ffi::AnyBuffer> result, std::string_view direction,
                          ffi::Span<const int64_t> geometry, bool residual, bool relu) try {
  Geometry g = Read(geometry);
  auto a = *given.get<ffi::AnyBuffer>(0), b = *given.get<ffi::AnyBuffer>(1);
  {
    std::lock_guard<std::mutex> lock(call->mutex);
    if (!call->primitive)
      Prepare(*call, direction, g, a.dimensions().begin(), b.dimensions().begin(),
              result->dimensions().begin(), residual, relu);
  }
  Arguments arguments{{DNNL_ARG_SCRATCHPAD,
                       At(call->scratch, Scratch(0, call->scratch.get_size()))}};
  memory first = At(call->a, a.untyped_data()), out = At(call->result, result->untyped_data());
  memory second = At(call->b, b.untyped_data());
  memory::desc plain = Kernel(g, false);
  if ((direction == "forward" || direction == "data") && call->b != plain) {
    second = At(call->b, Scratch(1, call->b.get_size()));
    Reorder(At(plain, b.untyped_data()), second);
  }
  if (direction == "weight") {
    if (call->result != plain) out = At(call->result, Scratch(1, call->result.get_size()));
    arguments.insert({{DNNL_ARG_SRC, first}, {DNNL_ARG_DIFF_DST, second},
                      {DNNL_ARG_DIFF_WEIGHTS, out}});
  } else if (direction == "data") {
    arguments.insert({{DNNL_ARG_DIFF_DST, first}, {DNNL_ARG_WEIGHTS, second},
                      {DNNL_ARG_DIFF_SRC, out}});
  } else {
    arguments.insert({{DNNL_ARG_SRC, first}, {DNNL_ARG_WEIGHTS, second}, {DNNL_ARG_DST, out}});
  }
  if (direction == "inference") {
    memory::desc bias({g.kernel[3]}, kFloat, Tag::a);
    arguments.insert({DNNL_ARG_BIAS, At(bias, given.get<ffi::AnyBuffer>(2)->untyped_data())});
    if (residual) {
      void* added = given.get<ffi::AnyBuffer>(3)->untyped_data();
      if (added != result->untyped_data())
        std::memcpy(result->untyped_data(), added, result->size_bytes());
    }
  }
  call->primitive->execute(Stream(), arguments);
  if (direction == "weight" && call->result != plain)
    Reorder(out, At(plain, result->untyped_data()));
  Stream().wait();
  return ffi::Error::Success();
} catch (const std::exception& error) {
  return ffi::Error::Internal(std::string("oneDNN: ") + error.what());
}

// ---- LSTM ----

memory::desc Described(memory::dims shape, Tag tag) { return {shape, kFloat, tag}; }

// Copies an array into the layout that a primitive wants, in memory of its own.
memory Packed(const memory::desc& plain, void* data, const memory::desc& wanted) {
  memory to(wanted, Engine());
  Reorder(At(plain, data), to);
  return to;
}

// (x, w, r, b) -> h after each step, and, with `gradient`, also (h's cotangent) -> (x, w, r, b)'s.
// The state begins at zero. Gates are in the order i, f, g, o.
ffi::Error RunLstm(ffi::RemainingArgs given, ffi::RemainingRets results, bool gradient) try {
  auto argument = [&](size_t i) { return given.get<ffi::AnyBuffer>(i)->untyped_data(); };
  auto x_shape = given.get<ffi::AnyBuffer>(0)->dimensions();
  int64_t t = x_shape[0], n = x_shape[1], d = x_shape[2];
  int64_t h = given.get<ffi::AnyBuffer>(2)->dimensions()[0];
  auto x = Described({t, n, d}, Tag::tnc), y = Described({t, n, h}, Tag::tnc);
  auto bias = Described({1, 1, 4, h}, Tag::ldgo), state = Described({1, 1, n, h}, Tag::ldnc);
  // Given, because without an initial state the gradient of r is wrong.
  auto fresh = [&] { return memory(state, Engine()); };
  memory zero = fresh();
  std::memset(zero.get_data_handle(), 0, state.get_size());
  auto w = Described({1, 1, d, 4, h}, Tag::ldigo), r = Described({1, 1, h, 4, h}, Tag::ldigo);
  auto any_w = Described({1, 1, d, 4, h}, Tag::any), any_r = Described({1, 1, h, 4, h}, Tag::any);
  auto direction = dnnl::rnn_direction::unidirectional_left2right;
  dnnl::lstm_forward::primitive_desc forward(
      Engine(),
      gradient ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference,
      direction, x, state, state, any_w, any_r, bias, y, state, state, Attributes());
  memory hs = At(y, (*results.get<ffi::AnyBuffer>(0))->untyped_data());
  memory space = At(forward.workspace_desc(), Scratch(2, forward.workspace_desc().get_size()));
  Arguments arguments{
      {DNNL_ARG_SRC_LAYER, At(x, argument(0))},
      {DNNL_ARG_WEIGHTS_LAYER, Packed(w, argument(1), forward.weights_layer_desc())},
      {DNNL_ARG_WEIGHTS_ITER, Packed(r, argument(2), forward.weights_iter_desc())},
      {DNNL_ARG_BIAS, At(bias, argument(3))},
      {DNNL_ARG_SRC_ITER, zero},
      {DNNL_ARG_SRC_ITER_C, zero},
      {DNNL_ARG_DST_ITER, fresh()},
      {DNNL_ARG_DST_ITER_C, fresh()},
      {DNNL_ARG_DST_LAYER, hs},
      {DNNL_ARG_SCRATCHPAD,
       At(forward.scratchpad_desc(), Scratch(0, forward.scratchpad_desc().get_size()))}};
  if (gradient) arguments.insert({DNNL_ARG_WORKSPACE, space});
  dnnl::lstm_forward(forward).execute(Stream(), arguments);
  if (gradient) {
    dnnl::lstm_backward::primitive_desc backward(
        Engine(), dnnl::prop_kind::backward, direction, x, state, state, any_w, any_r, bias, y,
        state, state, x, state, state, any_w, any_r, bias, y, state, state, forward, Attributes());
    auto result = [&](size_t i) { return (*results.get<ffi::AnyBuffer>(i))->untyped_data(); };
    memory dw(backward.diff_weights_layer_desc(), Engine());
    memory dr(backward.diff_weights_iter_desc(), Engine());
    for (memory* sum : {&dw, &dr})  // the primitive adds to these
      std::memset(sum->get_data_handle(), 0, sum->get_desc().get_size());
    std::memset(result(4), 0, 4 * h * sizeof(float));
    arguments[DNNL_ARG_WEIGHTS_LAYER] = Packed(w, argument(1), backward.weights_layer_desc());
    arguments[DNNL_ARG_WEIGHTS_ITER] = Packed(r, argument(2), backward.weights_iter_desc());
    arguments[DNNL_ARG_SCRATCHPAD] =
        At(backward.scratchpad_desc(), Scratch(0, backward.scratchpad_desc().get_size()));
    arguments.insert({{DNNL_ARG_DIFF_DST_LAYER, At(y, argument(4))},
                      {DNNL_ARG_DIFF_SRC_LAYER, At(x, result(1))},
                      {DNNL_ARG_DIFF_DST_ITER, zero},
                      {DNNL_ARG_DIFF_DST_ITER_C, zero},
                      {DNNL_ARG_DIFF_SRC_ITER, fresh()},
                      {DNNL_ARG_DIFF_SRC_ITER_C, fresh()},
                      {DNNL_ARG_DIFF_WEIGHTS_LAYER, dw},
                      {DNNL_ARG_DIFF_WEIGHTS_ITER, dr},
                      {DNNL_ARG_DIFF_BIAS, At(bias, result(4))}});
    dnnl::lstm_backward(backward).execute(Stream(), arguments);
    Reorder(dw, At(w, result(2)));
    Reorder(dr, At(r, result(3)));
  }
  Stream().wait();
  return ffi::Error::Success();
} catch (const std::exception& error) {
  return ffi::Error::Internal(std::string("oneDNN: ") + error.what());
}

}  // namespace

extern "C" void* convolution_type_id() { return &Convolution::id; }
extern "C" void* convolution_type_info() { return &Convolution::info; }

// Packs a kernel for inference and returns the bytes, or only their number if `to` is null.
extern "C" int64_t pack(const int64_t* x, const int64_t* y, const int64_t* geometry, int residual,
                        int relu, void* from, void* to) {
  Geometry g = Read({geometry, 13});
  memory::desc wanted = Forward(g, Images(x), Images(y), true, residual, relu).weights_desc();
  if (to != nullptr) {
    Reorder(At(Kernel(g, false), from), At(wanted, to));
    Stream().wait();
  }
  return wanted.get_size();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(convolution_instantiate, NewConvolution, ffi::Ffi::BindInstantiate());
XLA_FFI_DEFINE_HANDLER_SYMBOL(convolution_execute, RunConvolution,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::State<Convolution>>()
                                  .RemainingArgs()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<std::string_view>("direction")
                                  .Attr<ffi::Span<const int64_t>>("geometry")
                                  .Attr<bool>("residual")
                                  .Attr<bool>("relu"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    lstm_execute, RunLstm,
    ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<bool>("gradient"));
