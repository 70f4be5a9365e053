// Package doctor checks that the times that a service was told fit together, and serves what it finds to operators:
// throughline.doctor.v1.DoctorService.
//
// A message must not arrive when its inbox row is gone, an answer must not be forgotten while its client still asks, and a message
// must not be delivered again while it is in hand. Each of these is a [Rule] of two settings. A service refuses to start where one is
// broken; the doctor looks again at what streams and consumers are really like.
package doctor
