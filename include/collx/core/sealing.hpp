// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The interface to a library that seals records; a component (interop/openssl.hpp) registers itself here. A seal shows
// whether bytes are those that the other end sent, complete, once and in order; the component may also encrypt them.
// Nothing here computes a seal or knows sockets.
#pragma once

#include <cstddef>

#include <collx/core/authentication.hpp>
#include <collx/core/pointers.hpp>

COLLX_BEGIN_NAMESPACE

namespace detail {

// Both directions of one connection. The seal of each record covers the number of records before it.
class sealer {
public:
    static constexpr std::size_t tag_bytes = 16;
    virtual ~sealer() = default;
    // Seals `bytes` of text together with a head that is sent in the clear. Changes the text in place.
    virtual bool seal(const unsigned char* head, std::size_t head_bytes, unsigned char* text, std::size_t bytes,
                      unsigned char* tag) = 0;
    // Returns false unless this is the next record of the other end; the text must then not be used.
    virtual bool open(const unsigned char* head, std::size_t head_bytes, unsigned char* text, std::size_t bytes,
                      const unsigned char* tag) = 0;
};
struct seal_component {
    const char* name;
    // session: a secret of the two ends of this connection. hides: encrypt as well. Errors: unsupported.
    sole_ptr<sealer> (*make)(const secret& session, bool is_connecting, bool hides);
};
// Written by: the initialisation of a program that includes the component; read by: transports.
inline const seal_component* seals = nullptr;

} // namespace detail

COLLX_END_NAMESPACE
