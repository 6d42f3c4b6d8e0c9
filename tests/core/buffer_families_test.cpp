// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tensors of libraries that need not be installed. Each family has an archetype with exactly the members by which it
// is recognised, so this test shows what collx requires of mdspan, Thrust, DLPack and torch.
#include <collx/core/as.hpp>
#include <collx/core/buffer.hpp>

#include <array>
#include <complex>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>

using collx::buffer_t, collx::contiguous_view, collx::mapped_view;

namespace {

std::vector<float> numbers(int n) {
    std::vector<float> v(static_cast<std::size_t>(n));
    std::iota(v.begin(), v.end(), 0.0f);
    return v;
}

template <class V>
auto elements(const V& v) {
    std::vector<typename V::value_type> all;
    for (std::size_t i = 0; i < v.size(); ++i) all.push_back(v[i]);
    return all;
}

// --- mdspan -------------------------------------------------------------------------------------------------------
template <int Rank>
struct shape_of {
    using index_type = int;
    std::array<int, Rank + 1> n;
    static constexpr std::size_t rank() { return Rank; }
    constexpr int extent(std::size_t d) const { return n[d]; }
};

template <int Rank, bool Dense>
struct strided_layout {
    shape_of<Rank> extents_;
    std::array<int, Rank + 1> strides;
    constexpr const shape_of<Rank>& extents() const { return extents_; }
    template <class... I>
    constexpr int operator()(I... index) const {
        int d = 0, sum = 0;
        ((sum += static_cast<int>(index) * strides[static_cast<std::size_t>(d++)]), ...);
        return sum;
    }
    static constexpr bool is_always_exhaustive() { return Dense; }
    static constexpr bool is_always_strided() { return true; }
    static constexpr bool is_strided() { return true; }
    constexpr int stride(std::size_t d) const { return strides[d]; }
};

// A layout without strides: tiles of 2 x 2.
struct tiled_layout {
    shape_of<2> extents_;
    constexpr const shape_of<2>& extents() const { return extents_; }
    constexpr int operator()(int i, int j) const {
        return ((i / 2) * ((extents_.n[1] + 1) / 2) + j / 2) * 4 + (i % 2) * 2 + j % 2;
    }
    static constexpr bool is_always_exhaustive() { return false; }
    static constexpr bool is_always_strided() { return false; }
};

template <class T, class Layout>
struct mdspan {
    using element_type = T;
    T* data;
    Layout layout;
    T* data_handle() const { return data; }
    const Layout& mapping() const { return layout; }
    const auto& extents() const { return layout.extents(); }
    static constexpr std::size_t rank() {
        return std::remove_cvref_t<decltype(std::declval<Layout>().extents())>::rank();
    }
};

// --- Thrust -------------------------------------------------------------------------------------------------------
struct device_reference {};
template <class T, class Reference>
struct wrapped_pointer {
    T* raw;
    T* get() const { return raw; }
    Reference operator*() const;
};
template <class T, class Reference>
struct wrapped_vector {
    std::vector<T> memory;
    wrapped_pointer<T, Reference> data() { return {memory.data()}; }
    wrapped_pointer<const T, Reference> data() const { return {memory.data()}; }
    std::size_t size() const { return memory.size(); }
};

// An owning vector whose iterators do not show that they are contiguous.
struct shy_vector {
    using value_type = float;
    struct iterator {
        float* at;
        float& operator*() const { return *at; }
        iterator operator+(std::ptrdiff_t d) const { return {at + d}; }
        std::ptrdiff_t operator-(const iterator& o) const { return at - o.at; }
    };
    std::vector<float> memory;
    float* data() { return memory.data(); }
    iterator begin() { return {memory.data()}; }
    std::size_t size() const { return memory.size(); }
    std::size_t capacity() const { return memory.capacity(); }
    float& operator[](std::size_t i) { return memory[i]; }
    void push_back(float x) { memory.push_back(x); }
};

// A view with data() and begin() that visits every second element: data() alone is not reliable.
struct skipping_view : shy_vector {
    iterator begin() { return {memory.data() + 1}; }
    void capacity() = delete;
};

// --- DLPack -------------------------------------------------------------------------------------------------------
struct dl_type {
    std::uint8_t code, bits;
    std::uint16_t lanes;
};
struct dl_device {
    int device_type;
    std::int32_t device_id;
};
struct dl_struct {
    void* data;
    dl_device device;
    std::int32_t ndim;
    dl_type dtype;
    std::int64_t* shape;
    std::int64_t* strides;
    std::uint64_t byte_offset;
};
struct dl_managed_tensor {
    dl_struct dl_tensor;
    void* manager_ctx;
};

// --- torch --------------------------------------------------------------------------------------------------------
struct torch_tensor {
    float* data;
    std::vector<std::int64_t> sizes, strides;
    template <class T>
    T* data_ptr() const {
        if (!std::is_same_v<T, float>) throw std::string("expected scalar type Float");
        return reinterpret_cast<T*>(data);
    }
    std::int64_t numel() const {
        return std::accumulate(sizes.begin(), sizes.end(), std::int64_t(1), std::multiplies<>());
    }
    bool is_contiguous() const { return true; }
    std::int64_t dim() const { return static_cast<std::int64_t>(sizes.size()); }
    std::int64_t size(std::int64_t d) const { return sizes[static_cast<std::size_t>(d)]; }
    std::int64_t stride(std::int64_t d) const { return strides[static_cast<std::size_t>(d)]; }
};
// The minimum that is recognised.
struct flat_torch_tensor {
    float* data;
    bool dense;
    template <class T>
    T* data_ptr() const {
        return reinterpret_cast<T*>(data);
    }
    std::int64_t numel() const { return 3; }
    bool is_contiguous() const { return dense; }
};

template <class F>
collx::errc code_thrown_by(F f) {
    try {
        f();
    } catch (const collx::error& e) {
        INFO(e.what());
        return e.code();
    }
    FAIL("nothing was thrown");
    return {};
}

} // namespace

TEST_CASE("mdspan: every layout is numbered with the last index fastest") {
    auto v = numbers(24);
    const mdspan<float, strided_layout<2, true>> right{v.data(), {{{4, 6}}, {6, 1}}};
    const mdspan<float, strided_layout<2, true>> left{v.data(), {{{4, 6}}, {1, 4}}};
    const mdspan<const float, strided_layout<2, false>> padded{v.data(), {{{4, 2}}, {6, 1}}};
    const mdspan<float, tiled_layout> tiled{v.data(), {{{4, 4}}}};
    const auto r = collx::buffer(right);
    CHECK(elements(r) == v);
    CHECK(r.contiguous_run(0) == 24);
    const auto l = collx::buffer(left);
    CHECK(l.contiguous_run(0) == 1);
    for (std::size_t i = 0; i < 4; ++i)
        for (std::size_t j = 0; j < 6; ++j) CHECK(l[i * 6 + j] == v[i + 4 * j]);
    const auto p = collx::buffer(padded);
    CHECK(elements(p) == std::vector<float>{0, 1, 6, 7, 12, 13, 18, 19});
    CHECK(p.contiguous_run(2) == 2);
    STATIC_REQUIRE_FALSE(decltype(p)::is_output);
    CHECK(elements(collx::buffer(tiled)) == std::vector<float>{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15});
    collx::buffer(left)[1] = -1;
    CHECK(v[4] == -1);
}

TEST_CASE("mdspan: a dense vector is contiguous, a strided one is not; rank 0 is one element; any rank works") {
    auto v = numbers(120);
    STATIC_REQUIRE(std::is_same_v<buffer_t<mdspan<float, strided_layout<1, true>>>, contiguous_view<float>>);
    const mdspan<float, strided_layout<1, false>> third{v.data(), {{{5}}, {3}}};
    CHECK(elements(collx::buffer(third)) == std::vector<float>{0, 3, 6, 9, 12});
    const mdspan<float, strided_layout<0, true>> scalar{v.data() + 7, {{}, {}}};
    CHECK(elements(collx::buffer(scalar)) == std::vector<float>{7});
    const mdspan<float, strided_layout<5, true>> deep{v.data(), {{{1, 2, 3, 4, 5}}, {999, 60, 20, 5, 1}}};
    CHECK(elements(collx::buffer(deep)) == v);
    CHECK(collx::buffer(deep).contiguous_run(0) == 120);
    const mdspan<float, strided_layout<3, true>> flat{v.data(), {{{4, 1, 6}}, {6, 999, 1}}};
    CHECK(collx::buffer(flat).contiguous_run(0) == 24); // an extent of one may have any stride
    const mdspan<float, strided_layout<2, true>> nothing{v.data(), {{{0, 6}}, {6, 1}}};
    CHECK(collx::buffer(nothing).size() == 0);
}

TEST_CASE("mdspan: an accessor that computes what it gives is not passed over") {
    struct seen : mdspan<const float, strided_layout<1, true>> {
        using reference = const float&;
    };
    struct scaled : mdspan<const float, strided_layout<1, true>> { // as std::linalg::scaled() makes them
        using reference = float;
    };
    STATIC_REQUIRE(std::is_same_v<buffer_t<seen>, contiguous_view<const float>>);
    STATIC_REQUIRE_FALSE(collx::Buffer<scaled>);
    STATIC_REQUIRE(collx::detail::how_seen_v<scaled> == collx::detail::seen_as::unknown); // nor a single element
}

TEST_CASE("wrapped pointers: device memory where they give proxies, host memory where they give references") {
    wrapped_vector<float, device_reference> device{numbers(3)};
    const auto view = collx::buffer(device);
    STATIC_REQUIRE(std::is_same_v<decltype(view), const collx::device_view<float>>);
    CHECK(view.data() == device.memory.data());
    CHECK(view.size() == 3);
    STATIC_REQUIRE(
        std::is_same_v<buffer_t<const wrapped_vector<float, device_reference>&>, collx::device_view<const float>>);
    STATIC_REQUIRE(std::is_same_v<buffer_t<wrapped_vector<float, float&>&>, contiguous_view<float>>);
}

TEST_CASE("an owning vector is contiguous even if its iterators do not say so; other things with data() are not") {
    shy_vector shy{numbers(3)};
    STATIC_REQUIRE(std::is_same_v<buffer_t<shy_vector&>, contiguous_view<float>>);
    CHECK(collx::buffer(shy).data() == shy.memory.data());
    skipping_view skipping{{numbers(3)}};
    const auto view = collx::buffer(skipping);
    STATIC_REQUIRE_FALSE(decltype(view)::is_contiguous);
    CHECK(view[0] == 1.0f);
}

TEST_CASE("DLPack and torch: a tensor says whether it lies in a device's memory") {
    auto v = numbers(4);
    std::int64_t shape[] = {4};
    for (const auto& [device, is_on_device] : {std::pair{1, false}, {2, true}, {3, false}, {10, true}, {13, false}}) {
        dl_struct t{v.data(), {device, 0}, 1, {2, 32, 1}, shape, nullptr, 0};
        const auto view = collx::as<float>(t);
        CHECK(view.is_on_device() == is_on_device);
        const auto there = collx::on_device(view);
        STATIC_REQUIRE(collx::DeviceBuffer<decltype(there)>);
        STATIC_REQUIRE(std::is_same_v<std::remove_const_t<decltype(there)>,
                                      collx::on_device_view<collx::mapped_view<float, collx::strided_mapping>>>);
        CHECK(there.size() == 4);
    }
    struct gpu_tensor : torch_tensor {
        bool is_cpu() const { return false; }
    };
    gpu_tensor there{{v.data(), {4}, {1}}};
    CHECK(collx::as<float>(there).is_on_device());
    torch_tensor here{v.data(), {4}, {1}};
    CHECK_FALSE(collx::as<float>(here).is_on_device());
}

TEST_CASE("DLPack: shape, strides and offset are followed") {
    auto v = numbers(24);
    std::int64_t shape[] = {4, 6}, transposed[] = {1, 4}, piece[] = {2, 3}, piece_strides[] = {6, 1};
    dl_struct x{v.data(), {1, 0}, 2, {2, 32, 1}, shape, nullptr, 0};
    const auto dense = collx::as<float>(x);
    CHECK(elements(dense) == v);
    CHECK(dense.contiguous_run(0) == 24);
    x.strides = transposed;
    CHECK(collx::as<float>(x)[1] == v[4]);
    const dl_struct inner{v.data(), {1, 0}, 2, {2, 32, 1}, piece, piece_strides, 4 * sizeof(float)};
    CHECK(elements(collx::as<float>(inner)) == std::vector<float>{4, 5, 6, 10, 11, 12});
    STATIC_REQUIRE_FALSE(decltype(collx::as<const float>(inner))::is_output);
    const dl_managed_tensor managed{inner, nullptr};
    CHECK(collx::as<float>(managed).size() == 6);
    const dl_struct scalar{v.data(), {1, 0}, 0, {2, 32, 1}, nullptr, nullptr, 0};
    CHECK(collx::as<float>(scalar).size() == 1);
    std::int64_t nothing[] = {4, 0, 2};
    const dl_struct empty{v.data(), {1, 0}, 3, {2, 32, 1}, nothing, nullptr, 0};
    CHECK(collx::as<float>(empty).size() == 0);
    STATIC_REQUIRE_FALSE(collx::Buffer<dl_struct&>); // without as<T> there is no element type
    STATIC_REQUIRE(collx::Buffer<decltype(collx::as<float>(x))>);
}

TEST_CASE("DLPack: the element type is checked against the tensor") {
    std::uint64_t memory[2] = {};
    std::int64_t shape[] = {1};
    const auto tensor = [&](int code, int bits, int lanes = 1) {
        return dl_struct{
            memory,
            {1, 0},
            1,
            {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits), static_cast<std::uint16_t>(lanes)},
            shape,
            nullptr,
            0};
    };
    CHECK(collx::as<double>(tensor(2, 64)).size() == 1);
    CHECK(collx::as<collx::f16>(tensor(2, 16)).size() == 1);
    CHECK(collx::as<collx::bf16>(tensor(4, 16)).size() == 1);
    CHECK(collx::as<std::int8_t>(tensor(0, 8)).size() == 1);
    CHECK(collx::as<std::uint64_t>(tensor(1, 64)).size() == 1);
    CHECK(collx::as<bool>(tensor(6, 8)).size() == 1);
    CHECK(collx::as<bool>(tensor(1, 8)).size() == 1); // before DLPack 0.8
    using pair = std::array<float, 2>;
    CHECK(collx::as<pair>(tensor(2, 32, 2)).size() == 1); // two lanes are a struct of two elements

    const auto refused = [&](auto element, const dl_struct& x) {
        return code_thrown_by([&] { collx::as<decltype(element)>(x); }) == collx::errc::invalid_argument;
    };
    CHECK(refused(float(), tensor(2, 64)));
    CHECK(refused(float(), tensor(0, 32)));
    CHECK(refused(std::int32_t(), tensor(1, 32)));
    CHECK(refused(collx::f16(), tensor(4, 16)));
    CHECK(refused(collx::bf16(), tensor(2, 16)));
    CHECK(refused(float(), tensor(2, 32, 4)));
    CHECK(refused(bool(), tensor(0, 8)));
    CHECK(refused(pair(), tensor(2, 32)));
    CHECK(refused(double(), tensor(2, 32, 2)));      // two floats are no double
    CHECK(refused(std::uint8_t(), tensor(1, 4, 2))); // nor two half bytes a byte
    CHECK(collx::as<collx::e4m3>(tensor(10, 8)).size() == 1);
    CHECK(collx::as<collx::e5m2>(tensor(12, 8)).size() == 1);
    CHECK(refused(collx::e4m3(), tensor(12, 8)));
    CHECK(refused(collx::e5m2(), tensor(1, 8)));
}

TEST_CASE("DLPack: tensors that make no sense, and those that may only be read") {
    float memory[4] = {1, 2, 3, 4};
    std::int64_t shape[] = {2, 2};
    dl_struct t{memory, {1, 0}, 2, {2, 32, 1}, shape, nullptr, 0};
    const auto refused = [&] { return code_thrown_by([&] { collx::as<float>(t); }) == collx::errc::invalid_argument; };
    for (const auto& [a, b] : {std::pair<std::int64_t, std::int64_t>{-1, 1}, {-2, -3}, {std::int64_t{1} << 62, 4}}) {
        shape[0] = a;
        shape[1] = b;
        CHECK(refused());
    }
    shape[0] = shape[1] = 2;
    CHECK(collx::as<float>(t).size() == 4);
    t.byte_offset = 2;
    CHECK(refused());
    t.byte_offset = 4;
    shape[0] = 1;
    CHECK(collx::as<float>(t)[0] == 2);

    struct versioned {
        struct {
            std::uint32_t major, minor;
        } version;
        std::uint64_t flags;
        dl_struct dl_tensor;
    };
    versioned v{{1, 3}, 0, t};
    CHECK(collx::as<float>(v).size() == 2);
    v.flags = 1;
    CHECK(code_thrown_by([&] { collx::as<float>(v); }) == collx::errc::invalid_argument);
    CHECK(collx::as<const float>(v).size() == 2);
    v.version.major = 2;
    CHECK(code_thrown_by([&] { collx::as<const float>(v); }) == collx::errc::unsupported);
}

TEST_CASE("DLPack: the message names both types, and too many gaps are refused") {
    float x = 0;
    std::int64_t shape[10], strides[10];
    for (int d = 0; d < 10; ++d) {
        shape[d] = 2;
        strides[d] = 1 + 10 * d * d;
    }
    const dl_struct gaps{&x, {1, 0}, 10, {2, 32, 1}, shape, strides, 0};
    CHECK(code_thrown_by([&] { collx::as<float>(gaps); }) == collx::errc::unsupported);
    const dl_struct doubles{&x, {1, 0}, 1, {2, 64, 1}, shape, nullptr, 0};
    CHECK_THROWS_WITH(
        collx::as<float>(doubles),
        "collx: a DLPack tensor with type code 2 and 64 bits was taken for one of code 2 and 32 bits (name the "
        "type that the tensor has in collx::as<T>)");
}

TEST_CASE("torch: strides are followed, the type is torch's to check") {
    auto v = numbers(12);
    const torch_tensor dense{v.data(), {3, 4}, {4, 1}}, transposed{v.data(), {4, 3}, {1, 4}};
    CHECK(elements(collx::as<float>(dense)) == v);
    CHECK(collx::as<float>(dense).contiguous_run(0) == 12);
    CHECK(elements(collx::as<float>(transposed)) == std::vector<float>{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
    CHECK_THROWS_AS(collx::as<double>(dense), std::string);
    CHECK(elements(collx::as<float>(flat_torch_tensor{v.data(), true})) == std::vector<float>{0, 1, 2});
    CHECK(code_thrown_by([&] { collx::as<float>(flat_torch_tensor{v.data(), false}); }) == collx::errc::unsupported);
    STATIC_REQUIRE_FALSE(collx::Buffer<torch_tensor>);
}

namespace {
// torch has no data_ptr<T>() for types of others, and tensors that are conjugated or negated when they are read.
struct whole_torch_tensor : torch_tensor {
    int type;
    bool conjugated, negated;
    using torch_tensor::data_ptr;
    void* data_ptr() const { return data; }
    int scalar_type() const { return type; }
    bool is_conj() const { return conjugated; }
    bool is_neg() const { return negated; }
};
} // namespace

TEST_CASE("torch: half and complex types by torch's numbers; what is not in memory as it is read is refused") {
    auto v = numbers(4);
    whole_torch_tensor x{{v.data(), {2}, {1}}, 5, false, false};
    const auto is = [&](auto element) {
        try {
            return static_cast<const void*>(collx::as<decltype(element)>(x).pointer(0)) == v.data();
        } catch (const collx::error& e) {
            CHECK(e.code() == collx::errc::invalid_argument);
            return false;
        }
    };
    CHECK(is(collx::f16()));
    CHECK_FALSE(is(collx::bf16()));
    for (const int type : {15, 9, 10, 24, 23}) {
        x.type = type;
        CHECK(is(collx::bf16()) == (type == 15));
        CHECK(is(std::complex<float>()) == (type == 9));
        CHECK(is(std::complex<double>()) == (type == 10));
        CHECK(is(collx::e4m3()) == (type == 24));
        CHECK(is(collx::e5m2()) == (type == 23));
    }
    x.negated = true;
    CHECK_FALSE(is(float()));
    x.negated = false;
    x.conjugated = true;
    CHECK_FALSE(is(float()));
    x.conjugated = false;
    CHECK(is(float()));
}

namespace {
// Points to bytes, and its iterators to numbers.
struct blob {
    std::vector<double> numbers{1, 2, 3};
    unsigned char* data() { return reinterpret_cast<unsigned char*>(numbers.data()); }
    std::size_t size() const { return numbers.size(); }
    auto begin() { return numbers.begin(); }
    auto end() { return numbers.end(); }
};
struct inline_vector { // two floats and their number: as large as a std::string_view
    float at[3] = {};
    int count = 0;
    const float* data() const { return at; }
    std::size_t size() const { return static_cast<std::size_t>(count); }
};
} // namespace

TEST_CASE("elements are those that iterators visit; types that refer to something elsewhere are no elements") {
    blob b;
    STATIC_REQUIRE(std::is_same_v<collx::buffer_t<blob>, collx::contiguous_view<double>>);
    CHECK(elements(collx::buffer(b)) == std::vector<double>{1, 2, 3});
    STATIC_REQUIRE_FALSE(collx::Element<std::string_view>);
    STATIC_REQUIRE_FALSE(collx::Element<std::span<int>>);
    STATIC_REQUIRE_FALSE(collx::Element<std::span<int, 4>>);
    STATIC_REQUIRE_FALSE(collx::Element<std::reference_wrapper<int>>);
    STATIC_REQUIRE_FALSE(collx::Element<std::initializer_list<int>>);
    STATIC_REQUIRE_FALSE(collx::Element<collx::contiguous_view<int>>);
    STATIC_REQUIRE(collx::Element<std::array<float, 4>>);
    STATIC_REQUIRE(collx::Element<std::array<char, 8>>);
    STATIC_REQUIRE(collx::Element<inline_vector>);
    STATIC_REQUIRE(collx::Element<std::complex<double>>);
}
