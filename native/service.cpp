// veilboost._native.Service*: the lattice encryption of secure inference, many ciphertexts at a time.
#include <string>

#include "kernels.h"
#include "lattice/room.h"
#include "lattice/service_engine.h"

#include <nanobind/stl/string.h>

namespace {

using namespace lattice;

constexpr std::size_t kServicePrimes = ServiceRing::kPrimes, kPolyBytes = ServiceRing::kPolyBytes;
// In units of `Words`.
constexpr std::size_t kUnits = ServiceRing::kN / kPolyWords, kScratch = kServiceScratch / kPolyWords;

const ServiceEngine* const kEngines[] = {
#ifdef VEILBOOST_X86
    &kServiceIfma, &kServiceAvx2,
#endif
    &kServicePortable};

const ServiceEngine& engine_named(const std::string& name) {
  for (const ServiceEngine* engine : kEngines)
    if ((name == "auto" || name == engine->name) && engine->supported()) return *engine;
  throw std::invalid_argument("this processor has no such engine");
}

std::vector<u64> primes() {
  std::vector<u64> found;
  for (const Prime& prime : ServiceRing::kPrime) found.push_back(prime.p);
  return found;
}

class ServiceSecret {
 public:
  ServiceSecret(In1<std::int8_t> ternary, const std::string& engine)
      : engine_(engine_named(engine)), words_(2 * kServicePrimes * kUnits) {
    if (ternary.shape(0) != ServiceRing::kN) throw std::invalid_argument("a secret has another degree");
    engine_.prepare_secret(ternary.data(), words_.at());
  }

  void public_key(const nb::bytes& seed, const nb::bytes& noise, Out1<std::uint8_t> out) const {
    if (out.shape(0) != kPolyBytes) throw std::invalid_argument("public_key: wrong size");
    const Words room(kScratch);
    engine_.public_part(words_.at(), seed_of(seed), seed_of(noise), out.data(), room.at());
  }

  // Blinded (pairs, bytes) to constants (pairs, primes). False if a residue is out of range.
  bool decrypt(In2<std::uint8_t> blinded, Out2<u64> out, std::size_t threads) const {
    const std::size_t pairs = blinded.shape(0);
    if (blinded.shape(1) != kBlindedBytes || out.shape(0) != pairs || out.shape(1) != kServicePrimes)
      throw std::invalid_argument("decrypt: shapes do not fit together");
    std::atomic<bool> fits{true};
    const nb::gil_scoped_release released;
    spread(pairs, threads, kScratch, [&](std::size_t pair, void* room) {
      if (!engine_.decrypt(words_.at(), blinded.data() + pair * kBlindedBytes, out.data() + pair * kServicePrimes, room))
        fits = false;
    });
    return fits;
  }

 private:
  const ServiceEngine& engine_;
  Words words_;
};

class ServicePublic {
 public:
  ServicePublic(const nb::bytes& seed, In1<std::uint8_t> packed, const std::string& engine)
      : engine_(engine_named(engine)), words_(2 * kServicePrimes * kUnits) {
    if (packed.shape(0) != kPolyBytes || !engine_.prepare_key(seed_of(seed), packed.data(), words_.at()))
      throw std::invalid_argument("a public key has another size, or residues out of range");
  }

  // Polynomials of scale * values (count, terms) at X^place, encrypted: out (count, 2 polynomials).
  void encrypt(In2<std::int64_t> values, In2<std::int32_t> place, In1<u64> scale, const nb::bytes& noise,
               Out2<std::uint8_t> out, std::size_t threads) const {
    const std::size_t count = values.shape(0), terms = values.shape(1);
    if (place.shape(0) != count || place.shape(1) != terms || scale.shape(0) != kServicePrimes ||
        out.shape(0) != count || out.shape(1) != 2 * kPolyBytes)
      throw std::invalid_argument("encrypt: shapes do not fit together");
    for (std::size_t k = 0; k < count * terms; ++k)
      if (place.data()[k] < 0 || place.data()[k] >= static_cast<std::int32_t>(ServiceRing::kN))
        throw std::invalid_argument("encrypt: there is no such power");
    const std::uint8_t* noise_key = seed_of(noise);
    const nb::gil_scoped_release released;
    spread(count, threads, kScratch, [&](std::size_t at, void* room) {
      engine_.encrypt(words_.at(), values.data() + at * terms, place.data() + at * terms, terms, scale.data(),
                      noise_key, at, out.data() + at * 2 * kPolyBytes, room);
    });
  }

  // Whether all residues of rows of whole polynomials are in range.
  bool fits(In2<std::uint8_t> rows, std::size_t threads) const {
    if (rows.shape(1) % kPolyBytes) throw std::invalid_argument("fits: not whole polynomials");
    const std::size_t polynomials = rows.shape(0) * (rows.shape(1) / kPolyBytes);
    std::atomic<bool> all{true};
    const nb::gil_scoped_release released;
    spread(polynomials, threads, 0, [&](std::size_t at, void*) {
      if (!engine_.fits(rows.data() + at * kPolyBytes)) all = false;
    });
    return all;
  }

  // Pairs of a node and a row, by place; factors and offsets (pairs, primes).
  void blind(In2<std::uint8_t> nodes, In2<std::uint8_t> rows, In1<std::int64_t> at_nodes, In1<std::int64_t> of_rows,
             In2<u64> factors, In2<u64> offsets, const nb::bytes& noise, Out2<std::uint8_t> out,
             std::size_t threads) const {
    const std::size_t pairs = at_nodes.shape(0);
    if (nodes.shape(1) != 4 * kPolyBytes || rows.shape(1) != 2 * kPolyBytes || of_rows.shape(0) != pairs ||
        factors.shape(0) != pairs || factors.shape(1) != kServicePrimes || offsets.shape(0) != pairs ||
        offsets.shape(1) != kServicePrimes || out.shape(0) != pairs || out.shape(1) != kBlindedBytes)
      throw std::invalid_argument("blind: shapes do not fit together");
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const std::int64_t node = at_nodes.data()[pair], row = of_rows.data()[pair];
      if (node < 0 || node >= static_cast<std::int64_t>(nodes.shape(0)) || row < 0 ||
          row >= static_cast<std::int64_t>(rows.shape(0)))
        throw std::invalid_argument("blind: there is no such node or row");
      for (std::size_t j = 0; j < kServicePrimes; ++j)
        if (const std::size_t at = pair * kServicePrimes + j;
            factors.data()[at] >= ServiceRing::kPrime[j].p || offsets.data()[at] >= ServiceRing::kPrime[j].p)
          throw std::invalid_argument("blind: a factor is out of range");
    }
    const std::uint8_t* noise_key = seed_of(noise);
    const nb::gil_scoped_release released;
    spread(pairs, threads, kScratch, [&](std::size_t pair, void* room) {
      BlindJob job;
      job.key = words_.at();
      job.node = nodes.data() + static_cast<std::size_t>(at_nodes.data()[pair]) * 4 * kPolyBytes;
      job.row = rows.data() + static_cast<std::size_t>(of_rows.data()[pair]) * 2 * kPolyBytes;
      job.factor = factors.data() + pair * kServicePrimes;
      job.offset = offsets.data() + pair * kServicePrimes;
      job.noise_key = noise_key;
      job.noise_stream = pair;
      job.out = out.data() + pair * kBlindedBytes;
      job.scratch = room;
      engine_.blind(job);
    });
  }

 private:
  const ServiceEngine& engine_;
  Words words_;
};

}  // namespace

void bind_service(nb::module_& module) {
  module.def("service_primes", &primes);
  nb::class_<ServiceSecret>(module, "ServiceSecret")
      .def(nb::init<In1<std::int8_t>, const std::string&>())
      .def("public_key", &ServiceSecret::public_key)
      .def("decrypt", &ServiceSecret::decrypt);
  nb::class_<ServicePublic>(module, "ServicePublic")
      .def(nb::init<const nb::bytes&, In1<std::uint8_t>, const std::string&>())
      .def("encrypt", &ServicePublic::encrypt)
      .def("fits", &ServicePublic::fits)
      .def("blind", &ServicePublic::blind);
}
