// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Moves objects of any shape between ranks, through cereal (https://uscilab.github.io/cereal). An object needs a
// serialize(), and may contain maps, strings and pointers. The calls are those of by_value.hpp: they never write into
// an argument, and exchange sizes by themselves. For tensors use the verbs: these calls copy every object twice.
//
//   struct settings { std::map<std::string, double> rates; template <class A> void serialize(A& a) { a(rates); } };
//   const settings s = collx::objects::broadcast(world, mine, {.root = 0});
// collx-header: needs=cereal
#pragma once

#include <cstddef>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <cereal/archives/binary.hpp>
#include <cereal/cereal.hpp>

#include <collx/comm/by_value.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// An exception of serialize() on one rank ends the communicator, because the other ranks wait for this rank's part.
template <class Comm, class T>
std::string packed_object(Comm& comm, const T& x) {
    auto& c = base_of(comm).internals();
    return c.or_abandon([&] {
        std::ostringstream text;
        cereal::BinaryOutputArchive archive(text);
        try {
            archive(x);
        } catch (const error&) { // of another communicator's call
            c.abandon();
            throw;
        }
        return std::move(text).str();
    });
}
// Lengths inside the bytes of another type are arbitrary. An object of more bytes may really need all memory.
inline constexpr std::size_t most_believed = std::size_t{1} << 20;

// The text of an object of rank `peer`. Exceptions of the program's load() pass, but for those of containers that are
// given an impossible length.
template <class T, class Comm>
T unpacked_object(const Comm& comm, int peer, const std::string& text) {
    std::istringstream from(text);
    T x;
    const char* what = "it is longer";
    std::string why;
    try {
        cereal::BinaryInputArchive archive(from);
        archive(x);
        if (from.peek() == std::istringstream::traits_type::eof()) return x;
    } catch (const cereal::Exception& e) {
        why = e.what();
        what = why.c_str();
    } catch (const std::length_error& e) { // of the program's load(), or of a container
        why = std::string("a length in it cannot be: ") + e.what();
        what = why.c_str();
    } catch (const std::bad_alloc&) {
        if (text.size() > most_believed) throw;
        what = "a container in it is longer than there is memory for";
    }
    fail(errc::mismatch, comm.rank(), peer, "read the type that was written",
         "an object of %zu bytes from rank %d is no object of this type: %.120s", text.size(), peer, what);
}
template <class T, class Comm>
std::vector<T> unpacked_objects(const Comm& comm, const std::vector<std::string>& texts) {
    std::vector<T> all;
    for (const std::string& text : texts) all.push_back(unpacked_object<T>(comm, static_cast<int>(all.size()), text));
    return all;
}
// Cuts a text into texts of these lengths.
inline std::vector<std::string> cut_text(const std::string& all, const std::vector<std::size_t>& lengths) {
    std::vector<std::string> texts;
    std::size_t at = 0;
    for (const std::size_t length : lengths) {
        texts.push_back(all.substr(at, length));
        at += length;
    }
    return texts;
}
template <class Comm, class T>
std::vector<std::string> packed_objects(Comm& comm, const std::vector<T>& all) {
    std::vector<std::string> texts;
    for (const T& x : all) texts.push_back(packed_object(comm, x));
    return texts;
}

} // namespace detail

// T: default-constructible, with a serialize(), or save() and load(), that cereal finds. For standard containers in
// it, include headers of cereal/types/.
// Cost: the call by value on the bytes, and two copies of the object.
// Errors: as the verbs. An exception while an object is written ends the communicator (the other ranks get aborted).
//     One while it is read, after the call, concerns this rank alone; the communicator can be used on: mismatch where
//     the bytes are no such object, otherwise what load() throws.
namespace objects {

// Returns the root's object on every rank.
template <detail::Communicates Comm, class T>
T broadcast(Comm&& comm, const T& x, const call_options& o = {}) {
    const bool is_root = comm.rank() == o.root;
    return detail::unpacked_object<T>(
        comm, o.root, by_value::broadcast(comm, is_root ? detail::packed_object(comm, x) : std::string(), o));
}
// Returns the objects of all ranks, in rank order, on every rank.
template <detail::Communicates Comm, class T>
std::vector<T> all_gather(Comm&& comm, const T& x, const call_options& o = {}) {
    const std::string mine = detail::packed_object(comm, x);
    const detail::call_end end(o.timeout);
    const auto lengths = by_value::all_gather(comm, mine.size(), o);
    const std::string all = by_value::all_gather(comm, mine, end.left_of(o));
    return detail::unpacked_objects<T>(comm, detail::cut_text(all, lengths));
}
// The same at the root; an empty list elsewhere.
template <detail::Communicates Comm, class T>
std::vector<T> gather(Comm&& comm, const T& x, const call_options& o = {}) {
    const std::string mine = detail::packed_object(comm, x);
    const detail::call_end end(o.timeout);
    const auto lengths = by_value::gather(comm, mine.size(), o);
    const std::string all = by_value::gather(comm, mine, end.left_of(o));
    return detail::unpacked_objects<T>(comm, detail::cut_text(all, lengths));
}
// Returns all[r] of the root on rank r. Lists of other ranks are not used.
template <detail::Communicates Comm, class T>
T scatter(Comm&& comm, const std::vector<T>& all, const call_options& o = {}) {
    const bool is_root = comm.rank() == o.root;
    return detail::unpacked_object<T>(
        comm, o.root,
        by_value::scatter(comm, is_root ? detail::packed_objects(comm, all) : std::vector<std::string>(), o));
}
// Sends all[r] to rank r. Returns what came from each rank, in rank order.
template <detail::Communicates Comm, class T>
std::vector<T> all_to_all(Comm&& comm, const std::vector<T>& all, const call_options& o = {}) {
    return detail::unpacked_objects<T>(comm, by_value::all_to_all(comm, detail::packed_objects(comm, all), o));
}
template <detail::Communicates Comm, class T>
void send(Comm&& comm, const T& x, int peer, const call_options& o = {}) {
    by_value::send(comm, detail::packed_object(comm, x), peer, o);
}
// Example: const auto s = collx::objects::recv<settings>(world, 0);
template <class T, detail::Communicates Comm>
T recv(Comm&& comm, int peer, const call_options& o = {}) {
    return detail::unpacked_object<T>(comm, peer, by_value::recv<std::string>(comm, peer, o));
}
// Sends x to one rank and receives an object from another, or the same, without waiting for either first.
// Example: const settings theirs = collx::objects::sendrecv(world, mine, other, other);
template <detail::Communicates Comm, class T>
T sendrecv(Comm&& comm, const T& x, int to, int from, const call_options& o = {}) {
    return detail::unpacked_object<T>(comm, from,
                                      by_value::sendrecv(comm, detail::packed_object(comm, x), to, from, o));
}

} // namespace objects

COLLX_END_NAMESPACE
