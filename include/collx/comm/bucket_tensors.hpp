// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The tensors that were registered with bucketed: found by number or by name, and named in errors. Only for
// bucketed.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <collx/core/buffer.hpp>
#include <collx/core/error.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// T: type of the elements.
template <class T>
class bucket_tensors {
public:
    struct tensor {
        std::string name;
        T *home, *at; // as registered; in this step
        std::size_t size, bucket = 0;
        bool is_ready = false;
        bool shares_memory_with(const tensor& o) const {
            return size != 0 && o.size != 0 && at < o.at + o.size && o.at < at + size;
        }
    };

    // rank: of this process, for errors.
    explicit bucket_tensors(int rank) : rank_(rank) {}

    bool empty() const { return all_.empty(); }
    std::size_t size() const { return all_.size(); }
    tensor& operator[](std::size_t i) { return all_[i]; }
    const tensor& operator[](std::size_t i) const { return all_[i]; }
    auto begin() { return all_.begin(); }
    auto end() { return all_.end(); }
    auto begin() const { return all_.begin(); }
    auto end() const { return all_.end(); }

    int add(std::string_view name, contiguous_view<T> v) {
        if (find(name) >= 0) refuse("register each tensor once, by a name of its own", "is registered twice", name);
        all_.push_back({std::string(name), v.data(), v.data(), v.size()});
        return static_cast<int>(all_.size()) - 1;
    }
    // which: a number, or a name. Errors: invalid_argument if there is none.
    template <class Which>
    tensor& at(const Which& which) {
        if constexpr (std::is_integral_v<Which>) {
            if (which < Which{} || static_cast<std::uint64_t>(which) >= all_.size())
                refuse("use what add() returned", "is not registered", std::to_string(which));
            return all_[static_cast<std::size_t>(which)];
        } else {
            const int number = find(which);
            if (number < 0) refuse("register it with add()", "is not registered", which);
            return all_[static_cast<std::size_t>(number)];
        }
    }
    [[noreturn]] void refuse(const char* remedy, const char* what, std::string_view name) const {
        fail(errc::invalid_argument, rank_, -1, remedy, "tensor '%.*s' %s", static_cast<int>(name.size()), name.data(),
             what);
    }

private:
    int find(std::string_view name) const {
        for (std::size_t i = 0; i < all_.size(); ++i)
            if (all_[i].name == name) return static_cast<int>(i);
        return -1;
    }

    int rank_;
    std::vector<tensor> all_;
};

// Names for a sentence, four at most.
inline std::string quoted(const std::vector<std::string>& names) {
    std::string all;
    for (std::size_t i = 0; i < names.size() && i < 4; ++i) all += (i == 0 ? "'" : ", '") + names[i] + "'";
    return names.size() <= 4 ? all : all + " and " + std::to_string(names.size() - 4) + " more";
}

} // namespace detail

COLLX_END_NAMESPACE
