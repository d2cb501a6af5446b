// Arrays as arguments of kernels. A tree calls more than a hundred kernels with up to ten small arrays each, so a NumPy
// array's fields are read directly: the DLPack exchange of `nb::ndarray` would take longer than most of these kernels.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/ndarraytypes.h>

namespace nb = nanobind;

// A contiguous array that keeps its owner alive: for elements of lists.
template <class T, std::size_t N>
using Kept = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

// A contiguous array that lives as long as the call.
template <class T, std::size_t N>
class View {
 public:
  View() = default;
  View(T* data, const npy_intp* shape) : data_(data) {
    for (std::size_t i = 0; i < N; ++i) shape_[i] = static_cast<std::size_t>(shape[i]);
  }
  explicit View(const Kept<T, N>& array) : data_(array.data()) {
    for (std::size_t i = 0; i < N; ++i) shape_[i] = array.shape(i);
  }
  T* data() const { return data_; }
  std::size_t shape(std::size_t i) const { return shape_[i]; }

 private:
  T* data_ = nullptr;
  std::size_t shape_[N] = {};
};

template <class T>
using In1 = View<const T, 1>;
template <class T>
using In2 = View<const T, 2>;
template <class T>
using In3 = View<const T, 3>;
template <class T>
using Out1 = View<T, 1>;
template <class T>
using Out2 = View<T, 2>;
template <class T>
using Out3 = View<T, 3>;

namespace arrays {

template <class T>
bool has_type(int number) {
  using Value = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Value, bool>) return number == NPY_BOOL;
  if constexpr (std::is_same_v<Value, float>) return number == NPY_FLOAT;
  if constexpr (std::is_same_v<Value, double>) return number == NPY_DOUBLE;
  if constexpr (std::is_same_v<Value, std::int8_t>) return number == NPY_INT8;
  if constexpr (std::is_same_v<Value, std::uint8_t>) return number == NPY_UINT8;
  if constexpr (std::is_same_v<Value, std::uint16_t>) return number == NPY_UINT16;
  if constexpr (std::is_same_v<Value, std::int32_t>) return number == NPY_INT32;
  if constexpr (std::is_same_v<Value, std::int64_t>) return number == NPY_INT64;
  if constexpr (std::is_same_v<Value, std::uint64_t>) return number == NPY_UINT64;
  return false;
}

inline PyTypeObject* numpy_array() {
  static PyTypeObject* const type = reinterpret_cast<PyTypeObject*>(
      nb::object(nb::module_::import_("numpy").attr("ndarray")).release().ptr());
  return type;
}

}  // namespace arrays

namespace nanobind::detail {

// What is not exactly such a NumPy array is left to nanobind, which converts or refuses it.
template <class T, std::size_t N>
struct type_caster<View<T, N>> {
  using Slow = make_caster<Kept<T, N>>;
  static constexpr auto Name = Slow::Name;
  template <class>
  using Cast = View<T, N>;
  template <class>
  static constexpr bool can_cast() {
    return true;
  }

  bool from_python(handle source, std::uint8_t flags, cleanup_list* cleanup) noexcept {
    if (Py_TYPE(source.ptr()) == arrays::numpy_array()) {
      const PyArrayObject* array = reinterpret_cast<const PyArrayObject*>(source.ptr());
      constexpr int kWanted = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | (std::is_const_v<T> ? 0 : NPY_ARRAY_WRITEABLE);
      const PyArray_Descr* type = PyArray_DESCR(array);
      if (PyArray_NDIM(array) == static_cast<int>(N) && (PyArray_FLAGS(array) & kWanted) == kWanted &&
          arrays::has_type<T>(type->type_num) && type->byteorder != NPY_OPPBYTE) {
        value_ = View<T, N>(static_cast<T*>(PyArray_DATA(const_cast<PyArrayObject*>(array))), PyArray_DIMS(array));
        return true;
      }
    }
    if (!slow_.from_python(source, flags, cleanup)) return false;
    value_ = View<T, N>(slow_.value);
    return true;
  }
  explicit operator View<T, N>() { return value_; }

 private:
  View<T, N> value_;
  Slow slow_;
};

}  // namespace nanobind::detail
