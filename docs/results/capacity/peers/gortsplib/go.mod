module onrush-peer

go 1.22

require (
	github.com/bluenviron/gortsplib/v4 v4.12.0
	github.com/pion/rtp v1.8.9
)

require (
	github.com/bluenviron/mediacommon v1.13.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/pion/randutil v0.1.0 // indirect
	github.com/pion/rtcp v1.2.15 // indirect
	github.com/pion/sdp/v3 v3.0.9 // indirect
	golang.org/x/net v0.33.0 // indirect
	golang.org/x/sys v0.28.0 // indirect
)
