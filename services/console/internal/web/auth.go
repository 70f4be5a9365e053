package web

import (
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/throughline/throughline/services/console/internal/session"
)

// maxName bounds an operator's name, in characters.
const maxName = 60

// visit is a request of somebody who is known.
type visit struct {
	operator string
	// session is empty for somebody who shows the credential with each request.
	session session.Session
	// basic tells that the credential came with the request.
	basic bool
}

// actor is who an action is on record for.
func (v visit) actor() string { return v.operator + "@console" }

// known lets in who has a session, or shows the credential with the request by HTTP Basic authentication, the name as the user.
func (s *Server) known(next func(http.ResponseWriter, *http.Request, visit)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if name, credential, ok := r.BasicAuth(); ok {
			wait, right := s.try(r, credential)
			switch {
			case wait > 0:
				s.tooManyTries(w, r, wait)
			case !right || !validName(name):
				w.Header().Set("WWW-Authenticate", `Basic realm="throughline console", charset="UTF-8"`)
				s.fail(w, r, visit{}, http.StatusUnauthorized, "Not let in", "The credential is wrong, or the name is missing.")
			default:
				next(w, r, visit{operator: name, basic: true})
			}
			return
		}
		if c, err := r.Cookie(s.cookieName()); err == nil {
			if found, ok := s.cfg.Sessions.Find(c.Value); ok {
				next(w, r, visit{operator: found.Operator, session: found})
				return
			}
		}
		s.askWho(w, r)
	}
}

// askWho sends somebody who is not known to log in.
func (s *Server) askWho(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodGet || r.URL.Path == "/live":
		s.fail(w, r, visit{}, http.StatusUnauthorized, "Logged out", "Your session is over. Nothing was done. Log in, and do it again.")
	case r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") == "navigate":
		// A link on another site: the browser has kept the session cookie back. A step from a page of our own shows it.
		s.pages.render(w, r, http.StatusOK, "continue", page{Title: "One moment", Body: local(r.URL.RequestURI())})
	default:
		http.Redirect(w, r, "/login?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
	}
}

// loginForm is what the page of the login shows.
type loginForm struct{ Next, Name, Problem string }

func (s *Server) showLogin(w http.ResponseWriter, r *http.Request) {
	s.pages.render(w, r, http.StatusOK, "login", page{Title: "Log in", Body: loginForm{Next: local(r.URL.Query().Get("next"))}})
}

func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	if !s.readForm(w, r, visit{}) {
		return
	}
	form := loginForm{Next: local(r.PostForm.Get("next")), Name: strings.TrimSpace(r.PostForm.Get("name"))}
	wait, right := s.try(r, r.PostForm.Get("credential"))
	switch {
	case wait > 0:
		s.tooManyTries(w, r, wait)
		return
	case !right:
		form.Problem = "The credential is wrong."
	case !validName(form.Name):
		form.Problem = "Say who you are: actions are kept together with your name. A name has 1 to " + strconv.Itoa(maxName) + " characters."
	}
	if form.Problem != "" {
		s.pages.render(w, r, http.StatusUnauthorized, "login", page{Title: "Log in", Body: form})
		return
	}
	s.cfg.Logger.InfoContext(r.Context(), "an operator has logged in", "operator", form.Name)
	http.SetCookie(w, s.cookie(s.cfg.Sessions.Begin(form.Name), 0))
	http.Redirect(w, r, form.Next, http.StatusSeeOther)
}

func (s *Server) logout(w http.ResponseWriter, r *http.Request, _ visit) {
	if c, err := r.Cookie(s.cookieName()); err == nil {
		s.cfg.Sessions.End(c.Value)
	}
	http.SetCookie(w, s.cookie("", -1))
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// try compares a credential, unless too many wrong ones came before.
func (s *Server) try(r *http.Request, credential string) (wait time.Duration, right bool) {
	var addr netip.Addr
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		addr = at.Addr() // the zero address counts for all that have none
	}
	wait, forget := s.cfg.Tries.Try(addr)
	if wait > 0 {
		return wait, false
	}
	if right = s.cfg.Sessions.Check(credential); right {
		forget()
	} else {
		s.cfg.Logger.WarnContext(r.Context(), "a wrong credential was shown", "address", addr)
	}
	return 0, right
}

func (s *Server) tooManyTries(w http.ResponseWriter, r *http.Request, wait time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)))
	s.fail(w, r, visit{}, http.StatusTooManyRequests, "Too many tries", "Wait "+wait.String()+" before you try again.")
}

// cookieName ties the cookie to this host and to https, where there is https.
func (s *Server) cookieName() string {
	if s.cfg.Secure {
		return "__Host-throughline-console"
	}
	return "throughline-console"
}

func (s *Server) cookie(value string, maxAge int) *http.Cookie {
	return &http.Cookie{
		Name: s.cookieName(), Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, Secure: s.cfg.Secure, SameSite: http.SameSiteStrictMode,
	}
}

// local gives a place within the console: whatever might lead elsewhere is its first page.
func local(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") ||
		strings.ContainsAny(next, "\\\r\n\t") || strings.HasPrefix(u.Path, "/login") {
		return "/"
	}
	return next
}

// validName tells whether actions can be kept under a name.
func validName(name string) bool {
	if n := utf8.RuneCountInString(name); n < 1 || n > maxName || !utf8.ValidString(name) || strings.TrimSpace(name) == "" {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

// readForm reads the form of a POST; false if that was answered with an error.
func (s *Server) readForm(w http.ResponseWriter, r *http.Request, v visit) bool {
	if err := r.ParseForm(); err != nil {
		s.fail(w, r, v, http.StatusBadRequest, "Not understood", "The form cannot be read, or is too long. Nothing was done.")
		return false
	}
	return true
}

func (s *Server) denyCrossOrigin(w http.ResponseWriter, r *http.Request) {
	s.fail(w, r, visit{}, http.StatusForbidden, "Refused", "The request came from another site. Nothing was done.")
}
